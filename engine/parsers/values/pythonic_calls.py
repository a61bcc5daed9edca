"""Rendering of tool calls as Python: `get_weather(city="Paris", from=2)`."""

from __future__ import annotations

import json
import re
from typing import Any

from greenroom.engine.parsers.values.tagged_arguments import argument_pairs


def render_pythonic_call(name: str, arguments: str) -> str:
    """Return a tool call as Python; arguments that are no JSON object are copied unchanged."""
    pairs = argument_pairs(arguments)
    if pairs is None:
        return f"{name}({arguments})"
    written = (f"{_rendered_key(key)}={_rendered(value)}" for key, value in pairs.items())
    return f"{name}({', '.join(written)})"


def _rendered_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z_][\w.-]*", key) else json.dumps(key, ensure_ascii=False)


def _rendered(value: Any) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{', '.join(map(_rendered, value))}]"
        case dict():
            return f"{{{', '.join(f'{_rendered(key)}: {_rendered(item)}' for key, item in value.items())}}}"
        case _:
            return str(value)

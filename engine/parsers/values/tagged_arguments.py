"""Arguments of past calls, to be rendered one by one."""

from __future__ import annotations

import json
from typing import Any

from greenroom.engine.parsers.parsed_call import Malformed
from greenroom.engine.parsers.values.json_calls import dump_json


def argument_pairs(arguments: str) -> dict[str, Any] | None:
    """Return the arguments of a call in the history; None if they are not a JSON object.

    Args:
        arguments: Text sent by the client, which may be invalid JSON.
    """
    try:
        pairs = dict(json.loads(arguments or "{}"))
        dump_json(pairs)
    except (ValueError, TypeError, RecursionError, Malformed):
        return None
    return pairs


def written_value(value: object) -> str:
    """Return a value as text between tags: an unquoted string, or JSON."""
    return value if isinstance(value, str) else dump_json(value)

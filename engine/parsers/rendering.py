"""Writing a call the way a model would, for prompts."""

from __future__ import annotations

import json


def json_call(name: str, arguments: str, key: str = "arguments") -> str:
    """A call as one JSON object; `arguments` is JSON text already."""
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{key}": {arguments or "{}"}}}'

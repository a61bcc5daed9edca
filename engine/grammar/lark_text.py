"""Pieces of Lark text that the grammars of answers and calls share."""

from __future__ import annotations

import json

SPACE = r"/[ \n\r\t]{1,4}/?"
"""White space before an answer or a call, as templates and models write it."""


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

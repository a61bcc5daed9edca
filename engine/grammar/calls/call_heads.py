"""The text before a call's arguments, in formats with the name outside JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenroom.engine.grammar.lark.grammar_builder import GrammarBuilder


_INDEX = "/[0-9]{1,3}/"


def call_head(text: GrammarBuilder, head: str, name: str) -> str:
    """Return the expression of a call's head.

    Args:
        head: Template of the head; `{}` is the name, `{index}` the number of the call.
        name: Name of the tool.
    """
    before, numbered, after = head.format(name, index="\0").partition("\0")
    written = text.fixed_text(before)
    return f"{written} {text.terminal(_INDEX)} {text.fixed_text(after)}" if numbered else written

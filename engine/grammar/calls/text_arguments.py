"""Arguments of tools that take one text, constrained by a Lark grammar instead of a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.engine.grammar.lark.lark_text import literal
from greenroom.schemas.messages.text_tools import ARGUMENT

if TYPE_CHECKING:
    from greenroom.engine.grammar.calls.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.lark.grammar_builder import GrammarBuilder


def json_arguments(text: GrammarBuilder, tool: ConstrainedTool) -> str:
    """Return the expression of a tool's arguments as a JSON object."""
    if tool.grammar is None:
        return text.json(tool.schema("#"))
    return f'{literal(f"{{{chr(34)}{ARGUMENT}{chr(34)}: ")} {json_text(text, tool)} "}}"'


def json_text(text: GrammarBuilder, tool: ConstrainedTool) -> str:
    """Return the expression of a tool's text argument as the inside of a JSON string, in quotes.

    Raises:
        ProblemError: 400 if the grammar cannot be rewritten for a JSON string.
    """
    grammar = tool.grammar
    assert grammar is not None
    if not grammar.escaped:
        raise tool.refusal(f"{grammar.obstacle} in the grammar")
    quote = literal('"')
    return f"{quote} {text.part_of_text(grammar.escaped)} {quote}"


def plain_text(text: GrammarBuilder, tool: ConstrainedTool, foreign: str) -> str:
    """Return the expression of a tool's text argument without quotes; empty if it could contain markup.

    Args:
        foreign: Characters that the text must not contain.
    """
    grammar = tool.grammar
    assert grammar is not None
    if grammar.characters is None or not grammar.characters.isdisjoint(foreign):
        return ""
    return text.part_of_text(grammar.lark)

"""Arguments of tools that take one text which a Lark grammar holds: what JSON Schema cannot say."""

from __future__ import annotations

from greenroom.engine.grammar.calls.constrained_tools import ConstrainedTool
from greenroom.engine.grammar.lark.grammar_builder import GrammarBuilder, literal
from greenroom.schemas.text_tools import ARGUMENT


def json_arguments(text: GrammarBuilder, tool: ConstrainedTool) -> str:
    """Return the arguments of a tool as a JSON object."""
    if tool.grammar is None:
        return text.json(tool.schema("#"))
    return f'{literal(f"{{{chr(34)}{ARGUMENT}{chr(34)}: ")} {json_text(text, tool)} "}}"'


def json_text(text: GrammarBuilder, tool: ConstrainedTool) -> str:
    """Return the text that a tool takes as a JSON string.

    Raises:
        ProblemError: 400: something in the grammar cannot stand there.
    """
    grammar = tool.grammar
    assert grammar is not None
    if not grammar.escaped:
        raise tool.refusal(f"{grammar.obstacle} in the grammar")
    quote = literal('"')
    return f"{quote} {text.part_of_text(grammar.escaped)} {quote}"


def plain_text(text: GrammarBuilder, tool: ConstrainedTool, foreign: str) -> str:
    """Return the text that a tool takes as it stands; empty if it might be read as something else.

    Args:
        foreign: Characters that it may not hold.
    """
    grammar = tool.grammar
    assert grammar is not None
    if grammar.characters is None or not grammar.characters.isdisjoint(foreign):
        return ""
    return text.part_of_text(grammar.lark)

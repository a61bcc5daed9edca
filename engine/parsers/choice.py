"""Which parser reads a model's answers: the record's, else what its template shows, else its family's."""

from __future__ import annotations

from collections.abc import Collection

from greenroom.engine.parsers.contract import ThinkingParser, ToolCallParser
from greenroom.engine.parsers.registry import thinking_parser, tool_parser
from greenroom.schemas.capabilities import CapabilityRecord


def choose_tool_parser(
    record: CapabilityRecord,
    chat_template: str | None,
    family_default: str,
    vocabulary: Collection[str] = (),
) -> ToolCallParser:
    """The parser of a model's tool calls.

    Args:
        chat_template: The template's source, if the model has one.
        family_default: Parser id to fall back on.
        vocabulary: The tokenizer's tokens; some models name their markers only there.

    Raises:
        LookupError: The record names a parser that does not exist.
    """
    return tool_parser(record.tool_parser or family_default)


def choose_thinking_parser(
    record: CapabilityRecord,
    chat_template: str | None,
    family_default: str,
    vocabulary: Collection[str] = (),
) -> ThinkingParser:
    """The parser of a model's thoughts; arguments as for `choose_tool_parser`."""
    return thinking_parser(record.thinking_parser or family_default)

"""Every parser under the id that capability records know it by (document 000, section 5.3)."""

from __future__ import annotations

from collections.abc import Callable

from greenroom.engine.parsers.contract import ThinkingParser, ToolCallParser

TOOL_PARSERS: dict[str, Callable[[], ToolCallParser]] = {}
THINKING_PARSERS: dict[str, Callable[[], ThinkingParser]] = {}


def tool_parser(parser_id: str) -> ToolCallParser:
    """The parser of that id.

    Raises:
        LookupError: No parser has that id.
    """
    return TOOL_PARSERS[parser_id]()


def thinking_parser(parser_id: str) -> ThinkingParser:
    """The parser of that id.

    Raises:
        LookupError: No parser has that id.
    """
    return THINKING_PARSERS[parser_id]()

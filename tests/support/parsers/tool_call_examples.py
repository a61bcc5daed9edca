"""One tool call in every call format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from greenroom.engine.formats.registry import FORMATS, make_tool_parser
from greenroom.schemas.messages.messages import Tool
from greenroom.tests.support.parsers.model_outputs import ExtractedCalls, collect_calls, extract_calls

WEATHER = Tool(
    "get_weather",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
CLOCK = Tool("clock.now", parameters={"type": "object", "properties": {}})
TOOLS = (WEATHER, CLOCK)
PARIS = {"city": "Paris", "days": 2}

WRITTEN = {known.parser_id: known.example for known in FORMATS}
"""The call to `get_weather` that each format gives as its example."""


def two_of_a_class(parser_ids: Iterable[str]) -> list[Any]:
    """Return parser ids as parameters: `make deep` tests those whose class two before them have, too."""
    classes, found = Counter[type](), list[Any]()
    for parser_id in parser_ids:
        kind = type(make_tool_parser(parser_id))
        classes[kind] += 1
        found.append(pytest.param(parser_id, marks=pytest.mark.deep) if classes[kind] > 2 else parser_id)
    return found


def extract_in_any_pieces(parser_id: str, text: str, tools: Sequence[Tool] | None = TOOLS) -> ExtractedCalls:
    """Return the calls in a text, after checking that parsing it by characters gives the same ones."""
    parser = make_tool_parser(parser_id)
    found = extract_calls(parser, text, tools)
    stream = parser.new_stream(tools)
    events = [event for character in text for event in stream.feed(character)]
    assert collect_calls([*events, *stream.finish()]) == found
    return found

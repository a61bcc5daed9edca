"""Calls in a text that ends before they do."""

from __future__ import annotations

import pytest

from greenroom.engine.parsers.detection.registry import make_thinking_parser, make_tool_parser
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.schemas.messages import ToolCall
from greenroom.schemas.prepared_input import PreparedInput
from greenroom.tests.support.model_outputs import collect_answer
from greenroom.tests.support.tool_call_examples import TOOLS, WRITTEN

ARGUMENTS = '{"city": "Paris", "days": 2}'


def calls_of(tool_format: str, text: str, *, ended_by_model: bool) -> tuple[ToolCall, ...]:
    prepared = PreparedInput((1,), frozenset(), 100, tools=TOOLS)
    parsers = make_tool_parser(tool_format), make_thinking_parser("null")
    stream = StreamProcessor(*parsers, prepared, lambda: "id")
    deltas = stream.feed(text)
    return collect_answer([*deltas, *stream.finish(ended_by_model=ended_by_model)]).tool_calls


@pytest.mark.parametrize("tool_format", WRITTEN)
def test_a_call_that_was_cut_is_made_whole_or_not_at_all(tool_format: str) -> None:
    text = WRITTEN[tool_format]
    for end in range(len(text)):
        for call in calls_of(tool_format, text[:end], ended_by_model=False):
            assert call.arguments == ARGUMENTS, text[:end]


@pytest.mark.parametrize("tool_format", ["glm4_native", "qwen3_coder", "seed_oss"])
def test_a_call_that_the_model_ended_needs_no_more_than_its_required_arguments(tool_format: str) -> None:
    text = WRITTEN[tool_format]
    first = text[: text.index("days")]
    for tag in ("<arg_key>", "<parameter="):
        first = first.removesuffix(tag)
    (call,) = calls_of(tool_format, first, ended_by_model=True)
    assert call.arguments == '{"city": "Paris"}'
    assert calls_of(tool_format, first, ended_by_model=False) == ()
    assert calls_of(tool_format, text[: text.index("<", text.index("get"))], ended_by_model=True) == ()


def test_a_call_that_was_cut_before_its_arguments_is_none_though_its_tool_requires_none() -> None:
    header = WRITTEN["harmony"].partition("{")[0].replace("get_weather", "clock.now")
    (call,) = calls_of("harmony", header, ended_by_model=True)
    assert call.arguments == "{}"
    assert calls_of("harmony", header, ended_by_model=False) == ()


@pytest.mark.parametrize(("tool_format", "shown"), [("glm4_native", "</"), ("qwen3_coder", "</f")])
def test_the_beginning_of_an_end_shows_that_no_argument_follows(tool_format: str, shown: str) -> None:
    text = WRITTEN[tool_format]
    end = text.rindex(shown if tool_format == "glm4_native" else "</function>") + len(shown)
    (call,) = calls_of(tool_format, text[:end], ended_by_model=False)
    assert call.arguments == ARGUMENTS

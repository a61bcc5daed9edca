"""Tool calls in output that is cut off before they end."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from greenroom.engine.formats.registry import make_reasoning_parser, make_tool_parser
from greenroom.engine.parsers.parser import ParsedCall, Release
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.schemas.messages.messages import ToolCall
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.tests.support.parsers.model_outputs import ParsedAnswer, collect_answer
from greenroom.tests.support.parsers.tool_call_examples import TOOLS, WRITTEN

ARGUMENTS = '{"city": "Paris", "days": 2}'


def answer_of(
    tool_format: str, pieces: Iterable[str], *, ended_by_model: bool = False, release: Release = "validated"
) -> ParsedAnswer:
    prepared = PreparedPrompt((1,), frozenset(), 100, tools=TOOLS)
    parsers = make_tool_parser(tool_format), make_reasoning_parser("null")
    stream = StreamProcessor(*parsers, prepared, lambda: "id", release=release)
    deltas = [delta for piece in pieces for delta in stream.feed(piece)]
    return collect_answer([*deltas, *stream.finish(ended_by_model=ended_by_model)])


def calls_of(tool_format: str, text: str, *, ended_by_model: bool) -> tuple[ToolCall, ...]:
    return answer_of(tool_format, [text], ended_by_model=ended_by_model).tool_calls


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


@pytest.mark.parametrize("tool_format", WRITTEN)
def test_nothing_of_a_later_call_that_a_grammar_held_is_text(tool_format: str) -> None:
    parser = make_tool_parser(tool_format)
    texts = {parser.render_all([ParsedCall("get_weather", ARGUMENTS)] * 2)}
    if tool_format in ("minimax_m1", "hermes_json", "jamba", "deepseek_v31"):
        texts.add(WRITTEN[tool_format] * 2)  # Two blocks.
    for text in texts:
        assert text is not None
        for end in range(text.index("2") + 1, len(text) + 1, 5):
            for pieces in ([text[:end]], text[:end]):
                answer = answer_of(tool_format, pieces, release="immediate")
                assert answer.tool_calls[0].arguments.startswith('{"city": "Paris"'), text[:end]
                assert not answer.text.strip(), text[:end]


@pytest.mark.parametrize("tool_format", ["minimax_m1", "hermes_json", "mistral", "qwen3_coder", "harmony"])
def test_text_before_and_behind_a_call_that_a_grammar_held_outlives_the_cut(tool_format: str) -> None:
    call = WRITTEN[tool_format]
    head = call[: call.index("get")]
    if tool_format == "harmony":
        said, head = "<|channel|>commentary<|message|>Let me see", "<|end|><|start|>assistant" + head
    else:
        said = "Let me see"
    assert answer_of(tool_format, [said], release="immediate").text == "Let me see"
    assert answer_of(tool_format, [said + head], release="immediate").text == "Let me see"
    if tool_format != "harmony":
        assert answer_of(tool_format, [call + " Well <"], release="immediate").text.strip() == "Well <"


def test_a_cut_call_that_nothing_held_is_text() -> None:
    call = WRITTEN["minimax_m1"]
    answer = answer_of("minimax_m1", [call + call[:40]])
    assert len(answer.tool_calls) == 1
    assert answer.text.strip() == call[:40].strip()

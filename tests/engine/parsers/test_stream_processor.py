"""Single-pass conversion of output to deltas: reasoning, tool calls, visible text and stop strings."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from greenroom.engine.formats.registry import make_reasoning_parser, make_tool_parser
from greenroom.engine.parsers.stream_processor import Delta, StreamProcessor
from greenroom.schemas.events.events import ReasoningDelta, TextDelta, ToolCallDelta
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.tests.support.parsers.tool_call_examples import CLOCK, TOOLS, WRITTEN

CALL = WRITTEN["hermes_json"]


def call_ids() -> Callable[[], str]:
    numbers = count()
    return lambda: f"call_{next(numbers)}"


def processor(
    tool_format: str = "hermes_json", thoughts: str = "think_tag", **prepared: Any
) -> StreamProcessor:
    given_input = PreparedPrompt((1,), frozenset(), 100, **{"tools": TOOLS, **prepared})
    return StreamProcessor(
        make_tool_parser(tool_format), make_reasoning_parser(thoughts), given_input, call_ids()
    )


def joined(deltas: list[Delta]) -> list[Delta]:
    result: list[Delta] = []
    for delta in deltas:
        match result[-1:], delta:
            case [TextDelta(before)], TextDelta(text):
                result[-1] = TextDelta(before + text)
            case [ReasoningDelta(before)], ReasoningDelta(text):
                result[-1] = ReasoningDelta(before + text)
            case _:
                result.append(delta)
    return result


def run(stream: StreamProcessor, pieces: list[str] | str) -> list[Delta]:
    return joined([delta for piece in pieces for delta in stream.feed(piece)] + stream.finish())


def whole_call(number: int = 0) -> list[Delta]:
    return [
        ToolCallDelta(number, f"call_{number}", "get_weather"),
        ToolCallDelta(number, arguments='{"city": "Paris", "days": 2}'),
    ]


def test_thought_text_and_parallel_calls() -> None:
    stream = processor()
    text = f"<think>\nTwo towns.\n</think>\n\nLet me look.\n{CALL}\n{CALL}"
    assert run(stream, text) == [
        ReasoningDelta("Two towns."),
        TextDelta("Let me look."),
        *whole_call(0),
        *whole_call(1),
    ]
    assert stream.has_tool_calls
    assert stream.malformed_calls == 0
    assert stream.finish() == []


def test_text_is_shown_token_by_token() -> None:
    stream = processor()
    shown = [stream.feed(piece) for piece in ["Hel", "lo", ",", " <", " world", "!"]]
    assert shown == [
        [TextDelta("Hel")],
        [TextDelta("lo")],
        [TextDelta(",")],
        [],
        [TextDelta(" < world")],
        [TextDelta("!")],
    ]


def test_a_call_inside_a_thought_is_part_of_the_thought() -> None:
    stream = processor(starts_in_reasoning=True)
    assert run(stream, f"I could {CALL}. No.") == [ReasoningDelta(f"I could {CALL}. No.")]
    assert not stream.has_tool_calls


def test_a_thought_inside_a_call_is_part_of_the_call() -> None:
    call = CALL.replace("Paris", "<think>Paris</think>")
    assert run(processor(), call)[1] == ToolCallDelta(
        0, arguments='{"city": "<think>Paris</think>", "days": 2}'
    )


def test_without_tools_calls_are_text() -> None:
    stream = processor(tools=())
    assert run(stream, f"{CALL}\n") == [TextDelta(f"{CALL}\n")]
    assert not stream.has_tool_calls


def test_a_call_to_another_tool_is_text_and_counted_and_logged_without_its_content() -> None:
    stream = processor(tools=(CLOCK,))
    with capture_logs() as logs:
        assert run(stream, f"Well:\n{CALL}\n") == [TextDelta(f"Well:\n{CALL}\n")]
    assert (stream.has_tool_calls, stream.malformed_calls) == (False, 1)
    assert [log["log_level"] for log in logs] == ["warning", "debug"]
    assert "Paris" not in str(logs[0])


def test_raw_output_is_text_up_to_a_stop_string() -> None:
    stream = processor(parse=False, starts_in_reasoning=True, stop=("END",))
    text = f"<think>a</think>{CALL}\n"
    assert run(stream, text + "EN" + "END" + "more") == [TextDelta(text + "EN")]
    assert stream.stopped == "END"


@pytest.mark.parametrize(
    ("stop", "text", "shown", "matched"),
    [
        (("stop",), "One stop two", "One ", "stop"),
        (("stop",), "One sto", "One sto", None),
        (("abcd", "bc"), "xabcd", "xa", "bc"),
        (("bc", "abc"), "xabc", "x", "abc"),
        (("\n\n",), "a\nb\n\nc", "a\nb", "\n\n"),
        (("aab",), "aaaab", "aa", "aab"),
        (("",), "abc", "abc", None),
        (("a" * 2_000,), "a" * 1_999 + "b", "a" * 1_999 + "b", None),
        (("a.b", "[x]", "\\d"), "a-b [y] \\d", "a-b [y] ", "\\d"),
        (("Paris",), f"<think>Paris</think>Rome, Paris, {CALL}", "Rome, ", "Paris"),
    ],
)
def test_stop_strings(stop: tuple[str, ...], text: str, shown: str, matched: str | None) -> None:
    for pieces in ([text], text):
        stream = processor(stop=stop)
        deltas = run(stream, pieces)
        assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == shown
        assert stream.stopped == matched
        assert stream.feed("more") == [] or matched is None


def test_a_stop_string_counts_neither_in_a_thought_nor_in_a_call_nor_across_one() -> None:
    stream = processor(stop=("Paris", "ab"))
    deltas = run(stream, f"<think>Paris</think>a{CALL}b")
    assert deltas == [ReasoningDelta("Paris"), TextDelta("a"), *whole_call(), TextDelta("\nb")]
    assert stream.stopped is None


def test_what_comes_after_a_stop_string_in_the_same_piece_is_dropped() -> None:
    stream = processor(stop=("stop",))
    assert stream.feed(f"Go. stop {CALL}") == [TextDelta("Go. ")]
    assert not stream.has_tool_calls
    assert stream.finish() == []


def test_tokens_of_the_thought_are_counted_apart() -> None:
    stream = processor()
    for piece in ["\n", "<th", "ink>", "Two", "", ".", "</think>"]:
        stream.feed(piece)
    assert stream.reasoning_tokens == 7
    assert not stream.in_reasoning
    for piece in ["\n\n", "Four", "."]:
        stream.feed(piece)
    assert (stream.tokens, stream.reasoning_tokens) == (10, 7)


def test_tokens_that_only_look_like_a_thought_are_not_counted_as_one() -> None:
    stream = processor()
    for piece in ["<", "th", "en"]:
        stream.feed(piece)
    assert (stream.tokens, stream.reasoning_tokens) == (3, 0)
    opened = processor(starts_in_reasoning=True)
    assert opened.in_reasoning
    opened.feed("Hm", 2)
    assert opened.reasoning_tokens == 2


def test_deltas_carry_the_choice_and_calls_may_be_shown_while_they_are_written() -> None:
    given_input = PreparedPrompt((1,), frozenset(), 100, tools=TOOLS)
    parsers = make_tool_parser("hermes_json"), make_reasoning_parser("null")
    stream = StreamProcessor(*parsers, given_input, call_ids(), index=3, release="immediate")
    assert stream.feed("Hm.") == [TextDelta("Hm.", 3)]
    torn = CALL.index("Paris")
    assert stream.feed(CALL[:torn]) == [
        ToolCallDelta(0, "call_0", "get_weather", "", 3),
        ToolCallDelta(0, arguments='{"city": "', index=3),
    ]


PIECES = [
    "<think>",
    "</think>",
    "<thi",
    "\n",
    " ",
    "stop",
    "sto",
    "p",
    "a",
    "b",
    CALL,
    CALL[:30],
    CALL[30:],
    "é",
]


@settings(max_examples=300)
@given(
    parts=st.lists(st.sampled_from(PIECES), max_size=10),
    boundaries=st.lists(st.integers(0, 1_000), max_size=10),
    starts_in_reasoning=st.booleans(),
    stop=st.sampled_from([(), ("stop",), ("ab", "top", "\n\n")]),
    parse=st.booleans(),
)
def test_deltas_do_not_depend_on_boundaries(
    parts: list[str], boundaries: list[int], starts_in_reasoning: bool, stop: tuple[str, ...], parse: bool
) -> None:
    text = "".join(parts)
    at = sorted({0, len(text), *(boundary % (len(text) + 1) for boundary in boundaries)})
    cuts: list[list[str] | str] = [
        [text],
        text,
        [text[a:b] for a, b in pairwise(at)],
    ]
    outcomes = []
    for pieces in cuts:
        stream = processor(starts_in_reasoning=starts_in_reasoning, stop=stop, parse=parse)
        deltas = run(stream, pieces)
        broken = stream.malformed_calls if stream.stopped is None else 0
        outcomes.append((deltas, stream.stopped, stream.has_tool_calls, broken))
        shown = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
        assert not any(string in shown for string in stop)
    assert outcomes[0] == outcomes[1] == outcomes[2]

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
from greenroom.schemas.messages.messages import ControlToken
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.tests.support.parsers.model_outputs import ParsedAnswer, collect_answer
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


@settings(max_examples=100)
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


SPECIAL = [
    *("<|begin_of_box|>", "<|end_of_box|>", "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>"),
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    *("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|constrain|>"),
]
WORDS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>"]
CONTROLS = {text: ControlToken(text, text in SPECIAL) for text in (*SPECIAL, *WORDS)}
GEMMA, KIMI = "mlx_lm.gemma4", "mlx_lm.kimi_k2"
EMPTY = "<|channel>thought\n<channel|>"


def read(
    text: str, tool_format: str = "hermes_json", thoughts: str = "think_tag", *, spelled: bool = False
) -> ParsedAnswer:
    """Parse a text whose control tokens are tokens, or are spelled with ordinary tokens."""
    prepared = PreparedPrompt((1,), frozenset(), 100, tools=TOOLS)
    stream = StreamProcessor(
        make_tool_parser(tool_format), make_reasoning_parser(thoughts), prepared, lambda: "id"
    )
    deltas, tokens = [], 0
    while text:
        token = next((name for name in CONTROLS if text.startswith(name)), "")
        piece = token or text[0]
        deltas += stream.feed(piece, 1, None if spelled or not token else CONTROLS[token])
        text = text[len(piece) :]
        tokens += 1
    deltas += stream.finish()
    assert stream.tokens == tokens
    return collect_answer(deltas)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("The answer is <|begin_of_box|>42<|end_of_box|>.", "The answer is 42."),
        ("Done.</think>", "Done."),
        ("Done.</think>\n</think>\n", "Done."),
        ("Done.\n<think>\n</think>", "Done."),
        ("</think>Done.", "Done."),
        ("Done.<tool_response>", "Done."),
    ],
)
def test_what_leaks_is_dropped_where_it_is_a_token(text: str, shown: str) -> None:
    assert read(text).text.rstrip() == shown
    assert read(text, spelled=True).text == text


@pytest.mark.parametrize(
    "text",
    [
        "Write <think> and </think> around it.",
        "Behind </think> comes the answer.",
        "A <think>\n is a tag.",
        "The tags <tool_response> and </tool_call> are read.",
    ],
)
def test_what_people_write_about_stays_in_the_midst_of_a_text(text: str) -> None:
    assert read(text).text == text


def test_a_doubled_end_behind_a_thought_is_dropped() -> None:
    answer = read("<think>Hm.</think></think>\n\nYes.")
    assert (answer.reasoning, answer.text) == ("Hm.", "Yes.")


def test_a_doubled_end_behind_a_call_is_dropped_and_before_one() -> None:
    for text in (f"{CALL}</tool_call>", f"</think>{CALL}", f"Look:</think>\n{CALL}\n</tool_call>\n{CALL}"):
        answer = read(text)
        assert answer.tool_calls
        assert answer.text in ("", "Look:")


def test_an_empty_channel_behind_an_answer_is_dropped() -> None:
    assert read(f"Yes.{EMPTY}", GEMMA, "mlx_lm.channel").text == "Yes."
    assert read(f"Yes.{EMPTY} No.", GEMMA, "mlx_lm.channel").text == "Yes. No."
    assert read("Yes.<|channel>other\n", GEMMA, "mlx_lm.channel").text == "Yes.<|channel>other\n"


def test_a_doubled_section_end_is_dropped() -> None:
    answer = read(f"{WRITTEN[KIMI]}<|tool_calls_section_end|>", KIMI)
    assert (len(answer.tool_calls), answer.text) == (1, "")


@pytest.mark.parametrize(
    ("tool_format", "thoughts", "thought"),
    [
        ("hermes_json", "think_tag", "<think>A <|begin_of_box|>.</think>"),
        ("harmony", "harmony", "<|channel|>analysis<|message|>A <|begin_of_box|>.<|end|>"),
    ],
)
def test_in_thoughts_and_calls_every_token_is_read(tool_format: str, thoughts: str, thought: str) -> None:
    call = WRITTEN[tool_format].replace("Paris", "<|end_of_box|></think>Paris")
    answer = read(f"{thought}{call}", tool_format, thoughts)
    assert answer.reasoning == "A <|begin_of_box|>."
    assert "<|end_of_box|></think>Paris" in answer.tool_calls[0].arguments


def test_what_a_format_reads_outside_calls_is_left_to_it() -> None:
    text = f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{WRITTEN['harmony']}"
    answer = read(text, "harmony", "harmony")
    assert (answer.reasoning, answer.text, len(answer.tool_calls)) == ("Hm.", "", 1)
    final = "<|channel|>final<|message|>Yes.<|end|>"
    assert read(final, "harmony", "harmony").text == "Yes."


def test_text_before_a_token_in_one_piece_is_kept() -> None:
    prepared = PreparedPrompt((1,), frozenset(), 100)
    stream = StreamProcessor(make_tool_parser("null"), make_reasoning_parser("think_tag"), prepared, str)
    deltas = [
        *stream.feed("Yes"),
        *stream.feed(" <|end_of_box|>", 1, CONTROLS["<|end_of_box|>"]),
        *stream.feed("odd", 1, CONTROLS["<|end_of_box|>"]),
        *stream.finish(),
    ]
    assert collect_answer(deltas).text == "Yes odd"

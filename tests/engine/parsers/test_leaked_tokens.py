"""Control tokens that no parser reads: dropped as tokens, kept as ordinary text."""

from __future__ import annotations

import pytest

from greenroom.engine.formats.registry import make_reasoning_parser, make_tool_parser
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.schemas.messages.messages import ControlToken
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.tests.support.parsers.model_outputs import ParsedAnswer, collect_answer
from greenroom.tests.support.parsers.tool_call_examples import TOOLS, WRITTEN

SPECIAL = [
    *("<|begin_of_box|>", "<|end_of_box|>", "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>"),
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    *("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|constrain|>"),
]
WORDS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>"]
CONTROLS = {text: ControlToken(text, text in SPECIAL) for text in (*SPECIAL, *WORDS)}
CALL = WRITTEN["hermes_json"]
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

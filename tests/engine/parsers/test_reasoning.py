"""Reasoning before an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.engine.formats.registry import make_reasoning_parser, make_tool_parser
from greenroom.engine.parsers.parser import PlainText, ReasoningText, Release
from greenroom.engine.parsers.stream_processor import StreamProcessor
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.tests.support.parsers.model_outputs import (
    ExtractedReasoning,
    ParsedAnswer,
    collect_answer,
    extract_reasoning,
)
from greenroom.tests.support.parsers.tool_call_examples import TOOLS, WRITTEN

CALL = WRITTEN["hermes_json"]
ARGUMENTS = '{"city": "Paris", "days": 2}'
PARTS = ["Hm. ", "\n", "<tool", "<tool_call>", "\n{", "</tool_call>", CALL, "</think>", "<think>", "Rome"]
MARKED = sorted(
    name
    for name in WRITTEN
    if any(start and WRITTEN[name].startswith(start) for start, _ in make_tool_parser(name).markers)
)


def read(
    text: str,
    tool_format: str = "hermes_json",
    *,
    pieces: list[str] | None = None,
    ended_by_model: bool = True,
    release: Release = "validated",
) -> ParsedAnswer:
    """Parse an output that starts inside reasoning."""
    prepared = PreparedPrompt((1,), frozenset(), 100, tools=TOOLS, starts_in_reasoning=True)
    calls, thoughts = make_tool_parser(tool_format), make_reasoning_parser("think_tag")
    stream = StreamProcessor(calls, thoughts, prepared, lambda: "id", release=release)
    deltas = [delta for piece in pieces or [text] for delta in stream.feed(piece)]
    return collect_answer([*deltas, *stream.finish(ended_by_model=ended_by_model)])


@pytest.mark.parametrize("tool_format", [name for name in MARKED if name != "harmony"])
def test_calls_at_the_end_of_a_thought_are_made_and_are_no_part_of_it(tool_format: str) -> None:
    answer = read(f"Let me look.\n\n{WRITTEN[tool_format]}\n", tool_format)
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [("get_weather", ARGUMENTS)]
    assert (answer.reasoning, answer.text) == ("Let me look.", "")


def test_several_calls_are_made_whatever_the_thought_said_of_calls_before() -> None:
    said = f"A <tool_call> or {CALL} would do. <tool_call>\n{{}}</tool_call> Now:"
    answer = read(f"{said}\n{CALL}\n{CALL}")
    assert len(answer.tool_calls) == 2
    assert (answer.reasoning, answer.text) == (said, "")


@pytest.mark.parametrize(
    ("tail", "ended_by_model"),
    [
        (CALL, False),
        (f"{CALL}\nNo.", True),
        (CALL.replace("get_weather", "delete"), True),
        (CALL.partition(', "days"')[0], True),
        (f"{CALL}\n<tool_call>", True),
    ],
)
def test_what_was_cut_or_is_more_or_less_than_calls_stays_a_thought(tail: str, ended_by_model: bool) -> None:
    answer = read(f"Look: {tail}", ended_by_model=ended_by_model)
    assert (answer.reasoning, answer.text, answer.tool_calls) == (f"Look: {tail}", "", ())


@pytest.mark.parametrize("tool_format", sorted(set(WRITTEN) - {"harmony"}))
def test_only_what_begins_with_a_marker_is_a_call_in_a_thought(tool_format: str) -> None:
    written = WRITTEN[tool_format]
    marked = tool_format in MARKED
    for dropped in ("", *getattr(make_tool_parser(tool_format), "dropped", ())):
        text = f"For example:\n<{dropped}{written}"
        answer = read(text, tool_format, pieces=list(text))
        assert answer == read(text, tool_format)
        assert (len(answer.tool_calls), answer.reasoning) == (
            (1, f"For example:\n<{dropped}") if marked else (0, text)
        )


def test_a_call_in_a_thought_that_closes_stays_there() -> None:
    answer = read(f"Look: {CALL}</think>\n\nDone.")
    assert (answer.reasoning, answer.text, answer.tool_calls) == (f"Look: {CALL}", "Done.", ())
    assert read(f"{CALL}</think>").tool_calls == ()


def test_where_a_grammar_holds_calls_none_is_made_in_a_thought() -> None:
    assert read(CALL, release="immediate").tool_calls == ()


def test_a_thought_is_shown_as_it_comes_unless_it_may_be_calls() -> None:
    prepared = PreparedPrompt((1,), frozenset(), 100, tools=TOOLS, starts_in_reasoning=True)
    stream = StreamProcessor(
        make_tool_parser("hermes_json"), make_reasoning_parser("think_tag"), prepared, str
    )
    shown = [collect_answer(stream.feed(piece)).reasoning for piece in ["Hm", " <tool", "_call>", " is", "!"]]
    assert shown == ["Hm", None, None, " <tool_call> is", "!"]


def test_a_model_in_a_loop_makes_no_call() -> None:
    assert len(read("<tool_call>x" * 63 + CALL).tool_calls) == 1
    assert read("<tool_call>x" * 64 + CALL).tool_calls == ()


@given(st.lists(st.sampled_from(PARTS), max_size=7), st.booleans(), st.integers(1, 9))
def test_where_the_text_is_cut_makes_no_difference(parts: list[str], ended: bool, size: int) -> None:
    text = "".join(parts)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert read(text, pieces=pieces, ended_by_model=ended) == read(text, ended_by_model=ended)


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>\nTwo and two.\n</think>\n\nFour.", "Two and two.", "Four."),
        ("\n <think>Two.</think>Four.\n", "Two.", "Four.\n"),
        ("<think>\n\n</think>\n\nFour.", None, "Four."),
        ("<think>One\n\n two \n", "One\n\n two", ""),
        ("<think>", None, ""),
        ("Four.", None, "Four."),
        ("\n Four.", None, "\n Four."),
        ("Four. <think>No.</think>", None, "Four. <think>No.</think>"),
        ("Four.</think> Five.", None, "Four.</think> Five."),
        ("<think>a <think> b</think> c </think>", "a <think> b", " c </think>"),
        ("<think>a</think>\n<think>b</think>\nc", "a\n\nb", "c"),
        ("<think>a</think>\n\n    indented", "a", "    indented"),
        ("<think>a</think> \n ", "a", ""),
        ("<think>a</thi", "a</thi", ""),
        ("<thin", None, "<thin"),
        ("<think><tool_call>{}</tool_call></think>x", "<tool_call>{}</tool_call>", "x"),
        ("", None, ""),
    ],
)
def test_thought_and_answer(text: str, reasoning: str | None, answer: str) -> None:
    assert extract_reasoning(make_reasoning_parser("think_tag"), text) == ExtractedReasoning(
        reasoning, answer
    )


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("Two and two.\n</think>\n\nFour.", "Two and two.", "Four."),
        ("\n<think>\nTwo.</think>Four.", "Two.", "Four."),
        ("Two", "Two", ""),
        ("</think>\n\nFour.", None, "Four."),
        ("<thin", "<thin", ""),
        ("Two</think><think>Three</think>Four", "Two\n\nThree", "Four"),
    ],
)
def test_a_thought_that_the_template_opened(text: str, reasoning: str | None, answer: str) -> None:
    assert extract_reasoning(
        make_reasoning_parser("think_tag"), text, starts_open=True
    ) == ExtractedReasoning(reasoning, answer)


@pytest.mark.parametrize(
    ("parser_id", "text"),
    [
        ("mlx_lm.think", "<think>a</think>b"),
        ("mlx_lm.longcat_think", "<longcat_think>a</longcat_think>b"),
        ("mlx_lm.think_start", "<|think:start|>a<|think:end|>b"),
        ("mlx_lm.channel", "<|channel>thought\na<channel|>b"),
        (
            "mlx_lm.xtml",
            "<|open|>think<|sep|>a<|close|>think<|sep|><|open|>response<|sep|>b<|close|>response<|sep|>"
            "<|close|>message<|sep|>",
        ),
    ],
)
def test_markers_that_mlx_lm_knows(parser_id: str, text: str) -> None:
    parser = make_reasoning_parser(parser_id)
    assert extract_reasoning(parser, text) == ExtractedReasoning("a", "b")
    assert parser.parser_id == parser_id


def test_our_markers_are_all_that_mlx_lm_knows() -> None:
    import inspect
    import re

    from mlx_lm import tokenizer_utils

    source = inspect.getsource(tokenizer_utils._infer_thinking)
    ours = {
        marker
        for name in ("think", "longcat_think", "think_start", "channel", "xtml")
        for marker in make_reasoning_parser(f"mlx_lm.{name}").markers[0]
    }
    assert set(re.findall(r'"(<[^"]*think[^"]*|<\|channel>thought)"', source)) <= ours


def test_the_null_parser_knows_no_thoughts() -> None:
    assert extract_reasoning(make_reasoning_parser("null"), "<think>a</think>b") == ExtractedReasoning(
        None, "<think>a</think>b"
    )


def test_a_thought_is_shown_while_it_is_written() -> None:
    stream = make_reasoning_parser("think_tag").new_stream()
    assert not stream.in_reasoning
    assert stream.feed("<think>\n") == []
    assert stream.in_reasoning
    assert stream.feed("Two") == [ReasoningText("Two")]
    assert stream.feed(" and <") == [ReasoningText(" and")]
    assert stream.feed(" two") == [ReasoningText(" < two")]
    assert stream.feed("\n</think>\n") == []
    assert not stream.in_reasoning
    assert not stream.reasoning_ended
    assert stream.feed("Four") == [PlainText("Four")]
    assert stream.reasoning_ended


def test_an_unknown_id_is_refused_with_those_that_exist() -> None:
    with pytest.raises(LookupError, match=r"'thinker'.*think_tag"):
        make_reasoning_parser("thinker")


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("<think>\nHm.\n</think>\n<answer>\nYes.\n</answer>", "Hm.", "Yes."),
        ("<think>\nHm.\n</think>\n<answer>\nYes.", "Hm.", "Yes."),
        ("<think>\nHm.\n</think>\n<answer>\nYes.\n</ans", "Hm.", "Yes.\n</ans"),
        ("<think>Hm.</think>Yes, an <answer>.", "Hm.", "Yes, an <answer>."),
        ("<answer>It is </answer> in HTML.</answer> \n", None, "It is </answer> in HTML."),
        ("Yes.</answer>", None, "Yes.</answer>"),
        ("<think>Hm.</think><answer>", "Hm.", ""),
    ],
)
def test_an_answer_between_markers(text: str, thought: str | None, answer: str) -> None:
    parser = make_reasoning_parser("hunyuan")
    assert extract_reasoning(parser, text) == ExtractedReasoning(thought, answer)
    stream = parser.new_stream()
    events = [event for character in text for event in stream.feed(character)] + stream.finish()
    assert "".join(event.text for event in events if isinstance(event, PlainText)) == answer

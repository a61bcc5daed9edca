"""Reasoning before an answer."""

from __future__ import annotations

import pytest

from greenroom.engine.formats.registry import make_reasoning_parser
from greenroom.engine.parsers.parser import PlainText, ReasoningText
from greenroom.tests.support.parsers.model_outputs import ExtractedReasoning, extract_reasoning


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

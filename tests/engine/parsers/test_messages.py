"""Answers in messages, or between markers of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from greenroom.engine.formats.registry import detect_reasoning_parser
from greenroom.tests.support.parsers.model_outputs import parse_case
from greenroom.tests.support.parsers.tool_call_examples import WRITTEN

TOOLS = [{"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}}}}]
MUSE = WRITTEN["mlx_lm.muse_spark"]
GIGACHAT = WRITTEN["gigachat3"]


def read(tool_parser: str, reasoning_parser: str, text: str, starts: bool = False) -> dict[str, Any]:
    """Return the result of a text, equal for the whole text and for single characters."""
    whole = parse_case(tool_parser, reasoning_parser, TOOLS, starts, [text])
    assert parse_case(tool_parser, reasoning_parser, TOOLS, starts, list(text)) == whole
    return whole


@pytest.mark.parametrize("reasoning_parser", ["muse", "null"])
@pytest.mark.parametrize(
    ("text", "thought", "content", "calls"),
    [
        (" to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Yes.<|eot|>", "Hm.", "Yes.", 0),
        (" to=user<|message|>Yes.", None, "Yes.", 0),
        ("Yes, to=self is a header.", None, "Yes, to=self is a header.", 0),
        ("<|start|>world<|message|>there", None, "<|start|>world<|message|>there", 0),
        (
            f" to=self<|message|>Hm.<|eom|><|start|>assistant to=get_weather<|message|>{MUSE}<|eot|>",
            "Hm.",
            "",
            1,
        ),
        (
            f"<|start|>assistant to=user<|message|>Look.<|eom|><|start|>assistant to=f<|message|>{MUSE}",
            None,
            "Look.",
            1,
        ),
        (f" to=self<|message|>{MUSE}<|eom|><|start|>assistant to=user<|message|>No.", MUSE, "No.", 0),
        ("A <|start|> that begins nothing.", None, "A <|start|> that begins nothing.", 0),
    ],
)
def test_muse_writes_messages(
    reasoning_parser: str, text: str, thought: str | None, content: str, calls: int
) -> None:
    found = read("mlx_lm.muse_spark", reasoning_parser, text)
    assert (found["content"], len(found["calls"])) == (content, calls)
    assert found["reasoning"] == (thought if reasoning_parser == "muse" else None)


def test_an_answer_of_muse_may_begin_like_a_header() -> None:
    found = read("mlx_lm.muse_spark", "muse", " to=user<|message|>to=self<|message|>Hello")
    assert (found["reasoning"], found["content"]) == (None, "to=self<|message|>Hello")


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>final some words<|message|>Hello<|end|>",
        "Hello <|start|>world<|message|>there",
        "Hello <|start|>assistant and more<|channel|>final<|message|>there",
    ],
)
def test_a_header_whose_words_mean_nothing_is_text(text: str) -> None:
    words = {"some", "words", "world", "and", "more", "Hello", "there"}
    found = read("harmony", "harmony", text)["content"]
    assert {word for word in words if word in text} == {word for word in words if word in found}


def test_muse_goes_on_with_a_thought_that_the_prompt_opened() -> None:
    found = read(
        "mlx_lm.muse_spark", "muse", "Hm.<|eom|><|start|>assistant to=user<|message|>Yes.", starts=True
    )
    assert (found["reasoning"], found["content"]) == ("Hm.", "Yes.")


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (f"Look.{GIGACHAT}<|message_sep|>", "Look.", 1),
        (f"{GIGACHAT}{GIGACHAT}<|message_sep|>\n", "", 2),
        ("Hello.<|message_sep|>", "Hello.", 0),
        ("Hello.<|message_sep|> there", "Hello.<|message_sep|> there", 0),
        (f"<|function_call|>{json.dumps({'name': 'get_weather', 'arguments': {}})}</s>", "", 1),
    ],
)
def test_gigachat_separates_messages(text: str, content: str, calls: int) -> None:
    found = read("gigachat3", "null", text)
    assert (found["content"], len(found["calls"])) == (content, calls)


@pytest.mark.parametrize(
    ("text", "thought", "content"),
    [
        ("<think>Hm.</think>\n<response>Yes.</response>", "Hm.", "Yes."),
        ("<response>Yes.</response>\n", None, "Yes."),
        ("<response>A </response> in it.", None, "A </response> in it."),
        ("<think>Hm.</think>Yes, <response> is a tag.", "Hm.", "Yes, <response> is a tag."),
        ("<think>Hm.</think><response>Look." + WRITTEN["granite_json"], "Hm.", "Look."),
    ],
)
def test_granite_frames_its_answer(text: str, thought: str | None, content: str) -> None:
    found = read("granite_json", "granite33", text)
    assert (found["reasoning"], found["content"]) == (thought, content)
    assert len(found["calls"]) == text.count("<|tool_call|>")


@pytest.mark.parametrize(
    ("template", "parser_id"),
    [
        ("{{ '<|start_of_role|>' }} <think></think> <response></response>", "granite33"),
        ("<think></think> <response></response>", "ernie45"),
        ("<|start|>assistant to=self<|message|> <atem:function_calls>", "muse"),
    ],
)
def test_templates_of_framed_answers(template: str, parser_id: str) -> None:
    assert detect_reasoning_parser(template) == parser_id

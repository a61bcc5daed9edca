"""The channels of gpt-oss: reasoning, answers and tool calls."""

from __future__ import annotations

import json

import pytest

from greenroom.schemas.messages.messages import Tool
from greenroom.tests.support.parsers.model_outputs import parse_case
from greenroom.tests.support.parsers.tool_call_examples import PARIS, TOOLS, WRITTEN

REASONING = "<|channel|>analysis<|message|>Rain or sun?<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>Sun.<|return|>"
CALL = f"<|start|>assistant{WRITTEN['harmony']}"
ARGUMENTS = json.dumps(PARIS)


def read(text: str, tools: tuple[Tool, ...] = TOOLS, *, open_reasoning: bool = False) -> tuple[str, str, int]:
    """Return the reasoning, the answer and the number of calls, equal for whole and split text."""
    offered = [{"name": tool.name, "parameters": dict(tool.parameters)} for tool in tools]
    whole = parse_case("harmony", "harmony", offered, open_reasoning, [text])
    assert parse_case("harmony", "harmony", offered, open_reasoning, list(text)) == whole
    assert all(call["arguments"] == PARIS for call in whole["calls"])
    return whole["reasoning"] or "", whole["content"], len(whole["calls"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (REASONING + FINAL, ("Rain or sun?", "Sun.", 0)),
        (REASONING + CALL, ("Rain or sun?", "", 1)),
        (FINAL, ("", "Sun.", 0)),
        ("Just text, and <|end|> in it.", ("", "Just text, and <|end|> in it.", 0)),
        (REASONING + REASONING + FINAL, ("Rain or sun?\n\nRain or sun?", "Sun.", 0)),
        (REASONING + CALL + REASONING + FINAL, ("Rain or sun?\n\nRain or sun?", "Sun.", 1)),
        (
            f"<|channel|>commentary<|message|>Let me look.<|end|>{CALL}",
            ("", "Let me look.", 1),
        ),
        (
            f"<|channel|>commentary<|message|>Wait.<|end|>{FINAL}",
            ("", "Wait.\n\nSun.", 0),
        ),
        (f" to=functions.get_weather<|channel|>commentary json<|message|>{ARGUMENTS}", ("", "", 1)),
        (
            f"{REASONING}<|start|>assistant to=functions.get_weather<|channel|>commentary<|message|>"
            f"{ARGUMENTS}<|call|>",
            ("Rain or sun?", "", 1),
        ),
        (f"<|channel|>analysis to=functions.get_weather<|message|>{ARGUMENTS}<|end|>", ("", "", 1)),
        (
            "<|channel|>commentary to=assistant<|channel|>analysis<|message|>Hm.<|end|>" + FINAL,
            ("Hm.", "Sun.", 0),
        ),
        ("<|channel|>final<|message|>one <|end|> two<|end|><|return|>", ("", "one <|end|> two", 0)),
        ("<|channel|>final<|message|>The <|channel|> (a marker).", ("", "The <|channel|> (a marker).", 0)),
        (REASONING + '{"answer": 1}', ("Rain or sun?", '{"answer": 1}', 0)),
    ],
)
def test_channels(text: str, found: tuple[str, str, int]) -> None:
    assert read(text) == found


@pytest.mark.parametrize("length", [300, 360, 420, 900])
def test_a_long_header_means_the_same_however_it_is_split(length: int) -> None:
    text = REASONING.replace("analysis", "analysis" + " " * length) + FINAL
    assert read(text)[0] == ("Rain or sun?" if length < 370 else "")


def test_a_thought_that_the_prompt_has_opened() -> None:
    assert read("Rain or sun?<|end|>" + FINAL, open_reasoning=True) == ("Rain or sun?", "Sun.", 0)


@pytest.mark.parametrize("tools", [(), TOOLS[1:]])
def test_a_call_to_what_was_not_offered_is_text(tools: tuple[Tool, ...]) -> None:
    assert read(REASONING + CALL, tools) == ("Rain or sun?", CALL, 0)


def test_a_call_that_is_cut_is_text() -> None:
    torn = CALL[: CALL.index("days")]
    assert read(REASONING + torn) == ("Rain or sun?", torn, 0)


def test_an_end_inside_a_string_of_the_arguments_ends_no_call() -> None:
    text = CALL.replace("Paris", "say <|call|> please")
    tools = [{"name": "get_weather", "parameters": {}}]
    (call,) = parse_case("harmony", "harmony", tools, False, list(text))["calls"]
    assert call["arguments"] == {"city": "say <|call|> please", "days": 2}


def test_without_a_parser_of_thoughts_they_are_still_no_text() -> None:
    tools = [{"name": "get_weather", "parameters": {}}]
    found = parse_case("harmony", "null", tools, False, [REASONING + CALL + FINAL])
    assert (found["content"], len(found["calls"])) == ("Sun.", 1)

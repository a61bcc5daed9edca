"""Constrained answers of gpt-oss and their channels."""

from __future__ import annotations

import json

import pytest

from greenroom.engine.formats.registry import make_reasoning_parser
from greenroom.engine.grammar.matcher_state import Phase
from greenroom.schemas.messages.messages import Tool, ToolChoice
from greenroom.schemas.messages.requests import (
    CallConstraint,
    Constraint,
    JsonSchemaFormat,
    ReasoningConstraint,
)
from greenroom.tests.support.grammars.grammar_walks import END, Grammars
from greenroom.tests.support.parsers.model_outputs import parse_case

PARSER = make_reasoning_parser("harmony")
(MARKERS,) = PARSER.markers
SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
TOOL = Tool("look", parameters={**SCHEMA, "additionalProperties": False}, strict=True)
CALLS = CallConstraint((TOOL,), ToolChoice("required"), "harmony")
ANSWER = JsonSchemaFormat({**SCHEMA, "additionalProperties": False})
REASONING = f"{MARKERS[0]}Hm. {MARKERS[1]}"


def reasoning(budget: int | None = None) -> ReasoningConstraint:
    return ReasoningConstraint(*MARKERS, False, budget, PARSER.forced_end, PARSER.answer_starts)


@pytest.mark.parametrize("written", ["", REASONING])
@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>final<|message|>",
        "<|start|>assistant<|channel|>final<|message|>",
        "<|start|>assistant<|channel|>final <|constrain|>json<|message|>",
        "",
    ],
)
def test_an_answer_may_stand_in_the_final_channel(grammars: Grammars, written: str, header: str) -> None:
    matcher = grammars.matcher(Constraint(ANSWER, reasoning=reasoning()))
    opening = grammars.tokenizer.encode(f'{written}{header}{{"ok"')
    for token in opening:
        mask = matcher.mask()
        assert mask is None or mask.allows(token)
        matcher.accept_token(token)
    rest = grammars.walk(matcher, eager={END: 1.0})
    found = parse_case("harmony", "harmony", [], False, [grammars.text([*opening, *rest.tokens])])
    assert json.loads(found["content"]).keys() == {"ok"}
    assert found["reasoning"] == ("Hm." if written else None)


@pytest.mark.parametrize("start", ["", "<|start|>assistant"])
def test_a_forced_call_follows_a_thought(grammars: Grammars, start: str) -> None:
    matcher = grammars.matcher(Constraint(calls=CALLS, reasoning=reasoning()))
    opening = grammars.tokenizer.encode(f"{REASONING}{start}<|channel|>commentary to=functions.look")
    for token in opening:
        mask = matcher.mask()
        assert mask is None or mask.allows(token)
        matcher.accept_token(token)
    assert matcher.phase is Phase.ANSWER
    rest = grammars.walk(matcher, eager={END: 1.0})
    tools = [{"name": "look", "parameters": TOOL.parameters}]
    found = parse_case("harmony", "harmony", tools, False, [grammars.text([*opening, *rest.tokens])])
    assert [call["name"] for call in found["calls"]] == ["look"]
    assert (found["content"], found["reasoning"]) == ("", "Hm.")


def test_a_thought_whose_budget_is_spent_ends_as_a_message(grammars: Grammars) -> None:
    matcher = grammars.matcher(Constraint(calls=CALLS, reasoning=reasoning(budget=8)))
    for token in grammars.tokenizer.encode(MARKERS[0]):
        matcher.accept_token(token)
    assert matcher.phase is Phase.REASONING
    written = grammars.walk(matcher, eager={END: 1.0})
    assert "<|end|><|start|>assistant" in written.text
    tools = [{"name": "look", "parameters": TOOL.parameters}]
    found = parse_case("harmony", "harmony", tools, False, [MARKERS[0] + written.text])
    assert [call["name"] for call in found["calls"]] == ["look"]

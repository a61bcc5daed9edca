"""Tools whose schemas exceed the limits: strict ones are refused, others accept any object."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.engine.formats.registry import CALL_SYNTAXES
from greenroom.schemas.messages.messages import Tool, ToolChoice
from greenroom.schemas.messages.requests import CallConstraint, Constraint
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.grammars.grammar_walks import Grammars, accepted_prefix

AUTO, REQUIRED = ToolChoice("auto"), ToolChoice("required")
WEATHER = Tool(
    "weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}}, strict=True
)


def numbers(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{index}": {"type": "integer"} for index in range(count)}}


LARGE, TOO_LARGE = numbers(500), numbers(501)


@pytest.mark.parametrize(
    "parameters",
    [[TOO_LARGE], [LARGE, LARGE], [{"anyOf": [numbers(300), numbers(300)], **numbers(1)}]],
    ids=["one too large", "together too large", "alternatives too large"],
)
@pytest.mark.parametrize("choice", [REQUIRED, AUTO])
@pytest.mark.deep
def test_tools_that_are_not_strict_and_too_large_take_any_object(
    grammars: Grammars, parameters: list[dict[str, Any]], choice: ToolChoice
) -> None:
    tools = [Tool(name, parameters=of) for name, of in zip(("big", "other"), parameters, strict=False)]
    matcher = grammars.matcher(Constraint(calls=CallConstraint((*tools, WEATHER), choice, "hermes_json")))
    call = '<tool_call>\n{"name": "big", "arguments": {"p0": "none"}}\n</tool_call>'
    tokens = grammars.tokenizer.encode(call)
    assert accepted_prefix(matcher, tokens) == len(tokens)
    weather = grammars.tokenizer.encode(
        call.replace("big", "weather").replace("p0", "city").replace('"none"', "1")
    )
    assert accepted_prefix(matcher, weather) < len(weather)


@pytest.mark.deep
def test_strict_tools_that_are_too_large_are_refused(grammars: Grammars) -> None:
    for tools in (
        (Tool("big", parameters=TOO_LARGE, strict=True),),
        (Tool("big", parameters=LARGE, strict=True), Tool("other", parameters=LARGE, strict=True)),
    ):
        with pytest.raises(ProblemError) as refused:
            grammars.compiler.compile(Constraint(calls=CallConstraint(tools, REQUIRED, "hermes_json")))
        assert refused.value.problem.status == 400
        assert str(refused.value.problem.param).startswith("tools")


@pytest.mark.parametrize("call_format", CALL_SYNTAXES)
def test_arguments_may_be_anything_in_every_format(grammars: Grammars, call_format: str) -> None:
    anything = Tool("keep", parameters={"type": "object", "properties": {"value": True, "other": {}}})
    assert grammars.matcher(Constraint(calls=CallConstraint((anything,), REQUIRED, call_format)))

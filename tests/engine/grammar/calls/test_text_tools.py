"""Calls of tools that take one text: every format writes what their grammar holds, and reads it back."""

from __future__ import annotations

import json
import re

import pytest

from greenroom.engine.grammar.calls.call_formats import CALL_FORMATS
from greenroom.engine.parsers.detection.registry import make_tool_parser
from greenroom.schemas.messages import TextInput, Tool, ToolChoice
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.response_format import CallConstraint, Constraint
from greenroom.schemas.text_tools import ARGUMENT, text_tool
from greenroom.tests.support.grammar_walks import END, Grammars
from greenroom.tests.support.model_outputs import extract_calls

PARAM = "tools[0].custom.format.grammar.definition"
REQUIRED = ToolChoice("required")


def written_input(grammars: Grammars, call_format: str, tool: Tool, seed: int) -> str:
    """Force a call of the tool and return the text that a reader finds in it."""
    constraint = Constraint(calls=CallConstraint((tool,), REQUIRED, call_format, parallel=False))
    written = grammars.walk(constraint, seed, eager={END: 0.7})
    assert written.stopped
    [call] = extract_calls(make_tool_parser(call_format), written.text, (tool,)).calls
    arguments = json.loads(call.arguments)
    assert list(arguments) == [ARGUMENT]
    return str(arguments[ARGUMENT])


@pytest.mark.parametrize("call_format", CALL_FORMATS)
def test_a_text_matches_its_expression(grammars: Grammars, call_format: str) -> None:
    pattern = r'^(?P<word>[a-z"\\]{1,3})\n"\t?[^<>]{2,5}\s\d$'
    tool = text_tool("run", "Runs.", TextInput("regex", pattern), PARAM)
    for seed in (1, 2):
        text = written_input(grammars, call_format, tool, seed)
        assert re.fullmatch(pattern, text), text


@pytest.mark.parametrize("syntax", ["regex"])
def test_what_cannot_be_held_is_named(grammars: Grammars, syntax: str) -> None:
    tool = text_tool("run", "", TextInput("regex", r"(?=x)y"), PARAM)
    with pytest.raises(ProblemError) as refused:
        written_input(grammars, "hermes_json", tool, 0)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, PARAM)

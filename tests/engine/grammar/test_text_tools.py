"""Calls of tools with one text argument: every format writes texts of its grammar, and parses them."""

from __future__ import annotations

import json
import re
from typing import Literal

import pytest

from greenroom.engine.formats.registry import CALL_SYNTAXES, make_tool_parser
from greenroom.engine.grammar.tagged_calls import _is_json
from greenroom.schemas.messages.messages import ARGUMENT, TextInput, Tool, ToolChoice, text_tool
from greenroom.schemas.messages.requests import CallConstraint, Constraint
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.grammars.grammar_walks import END, Grammars
from greenroom.tests.support.parsers.model_outputs import extract_calls

Syntax = Literal["text", "regex", "lark"]
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
PARAM = "tools[0].custom.format.grammar.definition"
REQUIRED = ToolChoice("required")


def written_input(grammars: Grammars, call_format: str, tool: Tool, seed: int) -> str:
    """Force a call of the tool and return the parsed text argument."""
    constraint = Constraint(calls=CallConstraint((tool,), REQUIRED, call_format, parallel=False))
    walks = (grammars.walk(constraint, seed + 10 * again, limit=800, eager={END: 0.7}) for again in range(9))
    written = next(written for written in walks if written.stopped)
    [call] = extract_calls(make_tool_parser(call_format), written.text, (tool,)).calls
    arguments = json.loads(call.arguments)
    assert list(arguments) == [ARGUMENT]
    return str(arguments[ARGUMENT])


@pytest.mark.parametrize("call_format", CALL_SYNTAXES)
def test_a_text_matches_its_expression(grammars: Grammars, call_format: str) -> None:
    pattern = r'^(?P<word>[a-z"\\]{1,3})\n"\t?[^<>]{2,5}\s\d$'
    tool = text_tool("run", "Runs.", TextInput("regex", pattern), PARAM)
    text = written_input(grammars, call_format, tool, 1)
    assert re.fullmatch(pattern, text), text


PATCH = """
start: begin_patch hunk{1,2} end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: (add_hunk | delete_hunk)
add_hunk: "*** Add File: " filename LF add_line{1,3}
delete_hunk: "*** Delete File: " filename LF
filename: /(.{1,6})/
add_line: "+" /(.{0,6})/ LF -> line
%import common.LF
"""
SUM = r"""
start: sum
sum: term (("+" | "-") term)*
term: NUMBER | "(" sum ")" | STRING
STRING: "\"" /[^"\n<]{0,3}/ "\""
%import common.NUMBER
%import common.WS
%ignore WS
"""
PLAIN = """
start: verb " " NOUN END*
verb: "read"i | "a".."c"
NOUN: /[a-z]+/
END: "!"
"""
_LINES = r"(\*\*\* Add File: [^\n]+\n(\+[^\n]*\n)+|\*\*\* Delete File: [^\n]+\n)+"
_TERM = r"(\s|[-+()]|[0-9.]+(?:[eE][-+]?[0-9]+)?|\"[^\"\n<]{0,3}\")+"
GRAMMARS = {
    PATCH: rf"\*\*\* Begin Patch\n{_LINES}\*\*\* End Patch\n?",
    SUM: _TERM,
    PLAIN: r"((?i:read)|[abc]) [a-z]+!*",
}
"""Each with an expression that its texts match too."""


@pytest.mark.parametrize("lark", GRAMMARS, ids=["patch", "sum", "plain"])
@pytest.mark.parametrize("call_format", CALL_SYNTAXES)
def test_a_text_matches_its_grammar(grammars: Grammars, call_format: str, lark: str) -> None:
    tool = text_tool("run", "Runs.", TextInput("lark", lark), PARAM)
    text = written_input(grammars, call_format, tool, 1)
    assert re.fullmatch(GRAMMARS[lark], text), text
    outside = re.sub(r'"[^"]*"', "", text)
    assert lark != SUM or outside.count("(") == outside.count(")")


@pytest.mark.parametrize("call_format", ["hermes_json", "apertus", "cohere2", "qwen3_coder"])
def test_other_tools_stand_beside_it(grammars: Grammars, call_format: str) -> None:
    tools = (text_tool("run", "", TextInput("lark", PLAIN), PARAM), Tool("look", parameters=NOTHING))
    constraint = Constraint(calls=CallConstraint(tools, REQUIRED, call_format, parallel=True))
    called = set()
    for seed in range(12):
        written = grammars.walk(constraint, seed, eager={END: 0.4})
        for call in extract_calls(make_tool_parser(call_format), written.text, tools).calls:
            called.add(call.name)
            text = json.loads(call.arguments).get(ARGUMENT)
            assert (call.name == "look") == (text is None)
            assert text is None or re.fullmatch(GRAMMARS[PLAIN], text)
    assert called == {"run", "look"}


@pytest.mark.parametrize(
    ("syntax", "definition", "what"),
    [
        ("regex", "(?=x)y", "look-around"),
        ("lark", "start: missing", "missing"),
        ("lark", "start: /(?=x)y/", "compiled"),
        ("lark", "start: A\nA: /[a-c]/ & ~/b/", "'&' or '~'"),
        ("lark", "start: %json {}", "%json"),
        ("lark", "start: <|im_end|>", "im_end"),
        ("lark", 'start: "x"+\n%ignore /#.*/', "ignored"),
    ],
)
def test_what_cannot_be_held_is_named(grammars: Grammars, syntax: Syntax, definition: str, what: str) -> None:
    tool = text_tool("run", "", TextInput(syntax, definition), PARAM)
    with pytest.raises(ProblemError) as refused:
        written_input(grammars, "hermes_json", tool, 0)
    problem = refused.value.problem
    assert (problem.status, problem.param) == (400, PARAM)
    assert what in problem.detail


def test_a_value_that_is_nested_too_deep_to_be_read_is_no_plain_text() -> None:
    assert _is_json("[" * 100_000)

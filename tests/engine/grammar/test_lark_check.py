"""Clients' grammars are refused if compiling them would take forever or overflow the stack."""

from __future__ import annotations

import json
from typing import Any

import pytest

from greenroom.engine.grammar import limits
from greenroom.engine.grammar.grammar_summary import summarize_grammar
from greenroom.engine.grammar.lark_check import check_lark
from greenroom.schemas.messages.messages import Tool, ToolChoice
from greenroom.schemas.messages.requests import CallConstraint, ChoiceFormat, Constraint, LarkFormat
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.grammars.grammar_walks import Grammars

COUNTERS = ("/([ab]{97})*x/", "/([ab]{89})*[xy]/", "/([ab]{83})*[xz]/", "/([ab]{79})*[yz]/")
"""Nothing matches all four, which takes some 50 million states to find out."""
ALL_FOUR = " & ".join(COUNTERS)


def rules(length: int, letter: str = "r") -> str:
    chain = "".join(f"{letter}{index}: {letter}{index + 1}\n" for index in range(length))
    return f'start: {letter}0\n{chain}{letter}{length}: "x"\n'


def undeclared(levels: int) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(levels):
        schema = {"type": "object", "required": ["a", "b", "c"], "additionalProperties": schema}
    return schema


@pytest.mark.parametrize(
    "grammar",
    [
        rules(5_000),
        rules(5_000, "T"),
        rules(limits.MAX_PATH - 1),
        "".join(reversed(rules(5_000).splitlines(keepends=True))),
        rules(5_000).replace(": ", ":"),
        'start: "a"\n%ignore T0\n' + rules(5_000, "T").partition("\n")[2],
        f"start: %lark {{ {rules(5_000)} }}",
        rules(5_000, "r").replace("r0: r1", 'r0: "}" /}/ r1 // }'),
        f"start: T\nT: {ALL_FOUR} & {ALL_FOUR} & {ALL_FOUR} & {ALL_FOUR}",
        f'start: T\nT: "b" ({ALL_FOUR}) | "a"',
        f'start: T\nT: "b" U | "a"\nU: {ALL_FOUR}',
        f'start: t\nt: "b" ~({ALL_FOUR}) | "a"',
        f'start: "a"\n%ignore "b" ({ALL_FOUR}) | "a"',
        f'start: t\nt[stop="q"]: "b" ({ALL_FOUR}) | "a"',
        "start: T\nT: " + " & ".join([f"/{'|'.join(f'[a{i}]' for i in range(500))}/"] * 3),
        "start: " + " ".join(["/" + r"\p{L}" * 700 + "/i"] * 60),
        f"start: /{'a' * (limits.MAX_PATTERN + 1)}/",
        f"start: %json {json.dumps({'oneOf': [undeclared(50), undeclared(50)]})}",
        "start: %json " + json.dumps({"not": {"type": "string"}}),
        f"start: {'a' * limits.MAX_GRAMMAR}",
        'start: "' + '\\"' * 100_000,
        "start: /" + r"\/" * 100_000,
    ],
)
def test_what_would_not_compile_in_time_is_refused(grammar: str) -> None:
    # Most of these take llguidance seconds to for ever, or end the process.
    with pytest.raises(ProblemError) as refused:
        check_lark(grammar, "guided_grammar")
    assert refused.value.problem.status == 400
    assert str(refused.value.problem.param).startswith("guided_grammar")


@pytest.mark.parametrize(
    "grammar",
    [
        rules(limits.MAX_PATH - 2),
        'start: ID (" " ID)*\nID: /[a-z]+/ & ~KEYWORD\nKEYWORD: "if" | "else"\n',
        f'start: T\nT: {" & ".join(COUNTERS[:2])} | "a"',
        'start: "a" ~ 3..5 T~2\nT: "x"',
        'start: a b\na[stop="x", max_tokens=3]: /.*/\nb[capture="q", suffix=T]: /.*/\nT: /z+/\n',
        "%import common.INT\nstart: INT",
        'start: %json {"type": "object", "properties": {"a": {"type": "null"}}}',
        'start: inner\ninner: %lark {\nstart: "a" | b\nb: "b"\n}\n',
        'start: a | "x"\na: "y" start | ""',
    ],
)
def test_ordinary_grammars_compile(grammars: Grammars, grammar: str) -> None:
    assert grammars.compiler.compile(Constraint(LarkFormat(grammar)))


def test_an_outline_knows_names_from_what_looks_like_one() -> None:
    summary = summarize_grammar(
        '?start: (a "b: c" | /d: e/) bT // f: g\n'
        "!a[capture=h]: [i] # j: k\n"
        'T.2: "x"~3 | ~U & /[a-z]/i\n'
        "%ignore V\n"
        '%json {"l: m": 1}\n'
        "n: %lark { o: p }\n"
    )
    assert set(summary.definitions) == {"start", "a", "T", "%ignore", "n", "o"}
    assert summary.definitions["start"].references == [("a", 1), ("b", 0), ("T", 0)]
    assert summary.definitions["a"].attributes == [("capture", 1), ("h", 1)]
    assert summary.definitions["a"].references == [("i", 1)]
    assert summary.definitions["%ignore"].references == [("V", 0)]
    assert summary.combining == ["T"]
    assert (summary.intersections, summary.embeds, summary.schemas) == (1, True, [{"l: m": 1}])


@pytest.mark.parametrize("call_format", ["qwen3_coder", "glm4_native"])
def test_a_pattern_of_an_argument_without_quotes_is_looked_at_before(
    grammars: Grammars, call_format: str
) -> None:
    hard = [{"pattern": f"^(b{counter[1:-1]}|a)$"} for counter in COUNTERS]

    def call(patterns: list[Any]) -> Constraint:
        value = {"type": "string", "allOf": patterns}
        arguments = {"properties": {"v": value}, "required": ["v"], "additionalProperties": False}
        tools = (Tool("t", "", {"type": "object", **arguments}, strict=True),)
        return Constraint(calls=CallConstraint(tools, ToolChoice("required"), call_format))

    with pytest.raises(ProblemError) as refused:
        grammars.compiler.compile(call(hard))
    assert refused.value.problem.param == "tools[0].function.parameters"
    assert grammars.compiler.compile(call([{"pattern": "^[a-z]+$"}]))


def test_many_choices_are_one_lexeme(grammars: Grammars) -> None:
    choices = tuple(f"choice {index}" for index in range(15_000))
    written = grammars.walk(Constraint(ChoiceFormat(choices)), seed=3)
    assert written.text in choices

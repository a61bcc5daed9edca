"""Schemas whose compilation would multiply or recurse endlessly are refused before it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from greenroom.engine.grammar import limits
from greenroom.engine.grammar.constrained_tools import find_fault
from greenroom.engine.grammar.limits import ConstraintBudget
from greenroom.engine.grammar.schema_check import check_schema
from greenroom.schemas.messages.messages import Tool, ToolChoice
from greenroom.schemas.messages.requests import CallConstraint, Constraint, JsonSchemaFormat
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.grammars.grammar_walks import Grammars

NULL: Any = {"type": "null"}


def references(length: int) -> Any:
    """Return definitions that each require an object of the next: two levels per reference."""
    definitions: dict[str, Any] = {f"d{length}": NULL}
    for index in range(length):
        following = {"a": {"$ref": f"#/$defs/d{index + 1}"}}
        definitions[f"d{index}"] = {"type": "object", "properties": following, "required": ["a"]}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


def undeclared(levels: int, leaf: Any = NULL) -> Any:
    """Return a schema of three required names that one schema describes, repeatedly: 3^levels."""
    for _ in range(levels):
        leaf = {"type": "object", "required": ["a", "b", "c"], "additionalProperties": leaf}
    return leaf


def copies(names: int, size: int) -> Any:
    """Return a schema in which every name of one object gets a copy of the other object's schema."""
    large = {"properties": {f"q{index}": NULL for index in range(size)}}
    named: Any = {"properties": {f"p{index}": {} for index in range(names)}}
    return {"allOf": [named, {"additionalProperties": large}]}


def product(branches: int, times: int) -> Any:
    choice = [{"minLength": index} for index in range(branches)]
    return {"allOf": [{"anyOf": choice}] * times}


def patterns(count: int) -> Any:
    return {"type": "string", "allOf": [{"pattern": f"a.{{{index}}}b"} for index in range(count)]}


MULTIPLYING: tuple[Any, ...] = (
    undeclared(50),
    {"anyOf": [undeclared(50), undeclared(50)]},
    copies(500, 450),
    product(30, 30),
    product(2, 60),
    patterns(13),
    {"type": "string", "allOf": [{"pattern": "".join(f"[a{i}]" for i in range(500))}] * 3},
    {"type": "integer", "allOf": [{"multipleOf": 65_521}, {"multipleOf": 65_519}]},
)


@pytest.mark.parametrize("number", range(len(MULTIPLYING)))
def test_what_multiplies_is_refused_before_it_is_compiled(number: int) -> None:
    # Native compilation would take seconds to centuries; here the count ends with the budget.
    with pytest.raises(ProblemError) as refused:
        check_schema(MULTIPLYING[number], "tools[3].function.parameters")
    assert refused.value.problem.status == 400
    assert refused.value.problem.param == "tools[3].function.parameters"


@pytest.mark.parametrize(("branches", "refused"), [(150, False), (400, True)])
def test_a_discriminated_choice_may_have_some_hundred_branches(branches: int, refused: bool) -> None:
    schema = {
        "oneOf": [
            {"type": "object", "properties": {"k": {"const": f"v{i}"}, "a": {}}, "required": ["k", "a"]}
            for i in range(branches)
        ]
    }
    if not refused:
        assert check_schema(schema, "s")
        return
    with pytest.raises(ProblemError, match="steps of work"):
        check_schema(schema, "s")


def test_a_chain_of_bare_references_is_refused() -> None:
    definitions: Any = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(3_000)}
    with pytest.raises(ProblemError, match="references") as refused:
        check_schema({"$ref": "#/$defs/d0", "$defs": {**definitions, "d3000": NULL}}, "s")
    assert (refused.value.problem.param, refused.value.problem.code) == ("s", "schema_too_large")


def test_an_object_that_allof_makes_too_wide_is_refused() -> None:
    halves = [{"properties": {f"{half}{i}": NULL for i in range(300)}} for half in "ab"]
    with pytest.raises(ProblemError, match="more than 500 properties"):
        check_schema({"allOf": halves}, "s")


CHAIN = """
import json, sys, threading
from llguidance import LLMatcher
from greenroom.actors.core.worker_thread import STACK_BYTES
threading.stack_size(STACK_BYTES // 4)
grammar = json.dumps({"grammars": [{"json_schema": json.load(sys.stdin)}]})
thread = threading.Thread(target=lambda: print(LLMatcher.validate_grammar(grammar) == ""))
thread.start()
thread.join()
"""


def test_the_stack_of_a_worker_holds_many_times_the_longest_path() -> None:
    # The chain has twice the allowed levels, on a quarter of the stack.
    schema = json.dumps(references(limits.MAX_PATH))
    ended = subprocess.run(
        [sys.executable, "-c", CHAIN], input=schema, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "True"), ended.stderr


@pytest.mark.parametrize(("length", "refused"), [(249, False), (250, True), (3_000, True)])
def test_the_longest_path_through_references_is_limited(length: int, refused: bool) -> None:
    if not refused:
        assert check_schema(references(length), "s")
        return
    with pytest.raises(ProblemError, match=f"more than {limits.MAX_PATH} levels"):
        check_schema(references(length), "s")


def test_definitions_that_refer_to_each_other_are_met_once(grammars: Grammars) -> None:
    names = [f"n{index}" for index in range(40)]
    node = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    schema = {"$ref": "#/$defs/n0", "$defs": {name: {"type": "object", "properties": node} for name in names}}
    assert grammars.compiler.compile(Constraint(JsonSchemaFormat(schema)))


class Budget(ConstraintBudget):
    """Records the steps spent."""

    def __init__(self) -> None:
        super().__init__()
        self.spent: dict[str, int] = {}

    def spend(self, resource: Any, amount: int, param: object) -> None:
        self.spent[resource] = self.spent.get(resource, 0) + amount
        super().spend(resource, amount, param)


def steps(schema: Any) -> int:
    budget = Budget()
    check_schema(schema, "s", budget=budget)
    return budget.spent["steps of work"]


@pytest.mark.parametrize(
    ("grown", "most"),
    [
        (lambda size: {"properties": {f"p{i}": NULL for i in range(size)}}, 2.5),
        (lambda size: {"enum": [f"v{i}" for i in range(size)]}, 2.5),
        (references, 2.5),
        (lambda size: undeclared(size // 50), 12),
        (partial(copies, 10), 2.5),
        (lambda size: {"oneOf": [{"const": f"c{i}"} for i in range(size)]}, 4.5),
    ],
)
def test_steps_grow_as_llguidance_works(grown: Callable[[int], Any], most: float) -> None:
    # Twice as large: twice the steps where it copies nothing, four times where it compares each with each.
    assert steps(grown(200)) <= most * steps(grown(100))


@pytest.mark.deep
def test_the_schemas_of_all_tools_share_one_budget(grammars: Grammars) -> None:
    wide = {"type": "object", "properties": {f"p{i}": NULL for i in range(400)}}

    def call(count: int, *, strict: bool) -> CallConstraint:
        tools = tuple(Tool(f"t{index}", "", wide, strict) for index in range(count))
        return CallConstraint(tools, ToolChoice("required"), "hermes_json")

    with pytest.raises(ProblemError) as refused:
        grammars.compiler.compile(Constraint(calls=call(30, strict=True)))
    assert refused.value.problem.param == "tools[24].function.parameters"
    assert grammars.compiler.compile(Constraint(calls=call(30, strict=False)))


def test_the_search_for_faults_is_charged_to_that_budget() -> None:
    texts = {f"p{index}": {"type": "string", "pattern": "(a"} for index in range(20)}
    schema = check_schema({"type": "object", "properties": texts}, "s")
    budget = ConstraintBudget()
    assert find_fault(schema, "s", budget)
    budget.spend("steps of work", limits.MAX_STEPS - 3, "s")
    with pytest.raises(ProblemError) as refused:
        find_fault(schema, "s", budget)
    assert refused.value.problem.code == "schema_too_large"


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"minimum": 10**3000}, ".minimum"),
        ({"exclusiveMaximum": -(10**400)}, ".exclusiveMaximum"),
        ({"const": 10**3000}, ".const"),
        ({"enum": [1, {"a": [10**4000]}]}, ".enum[1].a[0]"),
        ({"minLength": 10**30}, ".minLength"),
        ({"minItems": 10**9}, ".minItems"),
        ({"minItems": 1e300}, ".minItems"),
        ({"multipleOf": 1e-400}, ".multipleOf"),
        ({"multipleOf": 1e-320}, ".multipleOf"),
        ({"multipleOf": 4_294_967_291}, ".multipleOf"),
        ({"maximum": float("inf")}, ".maximum"),
        ({"minimum": float("nan")}, ".minimum"),
        ({"type": [{}]}, ".type"),
        ({"format": ["date"]}, ".format"),
        ({"pattern": "\ud800"}, ".pattern"),
        ({"properties": {"a": {"const": {"\ud800": 1}}}}, ".properties.a.const"),
        ({"required": [f"n{i}" for i in range(501)]}, ".required"),
    ],
)
def test_values_that_no_grammar_can_hold_are_named(schema: Any, path: str) -> None:
    with pytest.raises(ProblemError) as refused:
        check_schema(schema, "s")
    assert (refused.value.problem.status, refused.value.problem.param) == (400, f"s{path}")
    assert len(refused.value.problem.detail) < 800


def test_long_names_are_written_once_and_short_in_errors() -> None:
    schema: Any = {"not": {"const": 1}}
    for _ in range(50):
        schema = {"properties": {"x" * 5_000: schema}}
    with pytest.raises(ProblemError) as refused:
        check_schema(schema, "s")
    param = refused.value.problem.param
    assert param is not None
    assert param.startswith("s.properties.xxx")
    assert param.endswith("xxx.not")

"""The documented maximum of optional properties: the answer continues at any position among them."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.engine.grammar import limits
from greenroom.schemas.messages.requests import Constraint, JsonSchemaFormat
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.grammars.grammar_walks import Grammars


def wide(count: int) -> Any:
    return {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(count)}}


def alternatives(count: int) -> Any:
    first, last = wide(count - 200), wide(200)
    return {"anyOf": [{"$ref": "#/$defs/last"}, first, {"type": "null"}], "$defs": {"last": last}}


@pytest.mark.parametrize(
    "schema",
    [
        wide(limits.MAX_PROPERTIES),
        {**wide(limits.MAX_PROPERTIES), "additionalProperties": False},
        {
            **wide(limits.MAX_PROPERTIES),
            "patternProperties": {"^x": {"type": "integer"}, "^y": {"type": "integer"}},
        },
        alternatives(limits.MAX_PROPERTIES),
    ],
    ids=["open", "closed", "patterns", "alternatives"],
)
@pytest.mark.parametrize("written", ["{", '{"p0":1,', '{"p170":1, "p199":2}'])
def test_an_answer_goes_on_with_as_many_optional_properties_as_there_may_be(
    grammars: Grammars, schema: Any, written: str
) -> None:
    matcher = grammars.matcher(Constraint(JsonSchemaFormat(schema)))
    for token in grammars.tokenizer.encode(written):
        mask = matcher.mask()
        assert mask is not None
        assert mask.allows(token)
        matcher.accept_token(token)
    matcher.mask()
    assert matcher.is_accepting is written.endswith("}")


def test_alternatives_share_the_limit(grammars: Grammars) -> None:
    with pytest.raises(ProblemError) as refused:
        grammars.matcher(Constraint(JsonSchemaFormat(alternatives(limits.MAX_PROPERTIES + 1))))
    assert refused.value.problem.code == "schema_too_large"
    assert "optional properties together" in refused.value.problem.detail


def test_properties_behind_a_required_one_are_not_shared(grammars: Grammars) -> None:
    names = [f"p{index}" for index in range(300)]
    branch = {"type": "object", "properties": dict.fromkeys(names, True), "required": ["p0"]}
    branches = [branch, {**branch, "required": ["p0", "p1"]}]
    assert grammars.matcher(Constraint(JsonSchemaFormat({"anyOf": branches})))

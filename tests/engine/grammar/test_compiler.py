"""Eviction of compiled constraints that are cached for later requests."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.engine.grammar.compiler import ConstraintCache
from greenroom.engine.grammar.matcher_state import CompiledConstraint
from greenroom.schemas.messages.requests import Constraint, JsonSchemaFormat
from greenroom.tests.support.grammars.grammar_walks import Grammars


@pytest.fixture
def compiled(grammars: Grammars) -> CompiledConstraint:
    return CompiledConstraint(grammars.tokenizer)


def test_those_used_last_are_kept(compiled: CompiledConstraint) -> None:
    cache = ConstraintCache(most=2)
    for key in (b"a", b"b"):
        cache.put(key, compiled, 0.001)
    assert cache.get(b"a") is compiled
    cache.put(b"c", compiled, 0.001)
    assert [key for key in (b"a", b"b", b"c") if cache.get(key)] == [b"a", b"c"]


def test_large_ones_take_the_room_of_many(compiled: CompiledConstraint) -> None:
    cache = ConstraintCache(most_seconds=3.0)
    for number in range(40):
        cache.put(bytes([number]), compiled, 0.01)
    cache.put(b"large", compiled, 2.905)
    assert (len(cache), cache.get(b"large")) == (10, compiled)
    cache.put(b"too large", compiled, 3.5)
    assert len(cache) == 0
    cache.put(b"small", compiled, 0.5)
    assert cache.get(b"small") is compiled


def test_the_same_constraint_is_compiled_once_unless_it_is_very_long(grammars: Grammars) -> None:
    def schema(length: int) -> Any:
        return {"type": "string", "description": "x" * length}

    for length, same in ((10, True), (1_000_000, False)):
        first, second = (grammars.matcher(Constraint(JsonSchemaFormat(schema(length)))) for _ in range(2))
        assert (first.constraint is second.constraint) is same


def test_a_compiled_constraint_is_shared_by_one_owner_only(grammars: Grammars) -> None:
    """The time of a compilation would tell another owner what has been asked."""
    plain = JsonSchemaFormat({"type": "string", "maxLength": 7})
    alice, again, bob = (grammars.matcher(Constraint(plain, cache_salt=owner)) for owner in "aab")
    assert alice.constraint is again.constraint
    assert bob.constraint is not alice.constraint

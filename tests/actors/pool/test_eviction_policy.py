"""Eviction policy: the choice of models to load, pause and unload."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.pool.eviction_policy import ModelUse, Plan, Room, plan
from greenroom.schemas.model_key import ModelKey

A, B, C = (ModelKey(name) for name in "abc")
NONE, GRANTED, RECLAIMED = Room


def ready(key: ModelKey, leases: int = 0, waiting: int = 0, last_used: float = 0.0) -> ModelUse:
    return ModelUse(key, GRANTED, ready=True, leases=leases, waiting=waiting, last_used=last_used)


def test_what_is_wanted_is_loaded_while_there_is_room() -> None:
    models = [ready(A, leases=1), ModelUse(B, waiting=1), ModelUse(C)]
    assert plan(models, 2) == Plan(load=(B,))


def test_the_longest_wait_is_served_first() -> None:
    models = [ModelUse(A, waiting=1, waiting_since=5.0), ModelUse(B, waiting=9, waiting_since=3.0)]
    assert plan(models, 1) == Plan(load=(B,), wait=(A,))


def test_the_least_recently_used_idle_model_makes_room() -> None:
    models = [ready(A, last_used=2.0), ready(B, last_used=1.0), ModelUse(C, waiting=1)]
    assert plan(models, 2) == Plan(wait=(C,), unload=(B,))


def test_room_that_is_being_made_is_not_made_twice() -> None:
    models = [ready(A), ModelUse(B, RECLAIMED), ModelUse(C, waiting=1)]
    assert plan(models, 2) == Plan(wait=(C,))


def test_a_model_that_is_held_is_paused_and_not_unloaded() -> None:
    models = [
        ready(A, leases=3, waiting=2, last_used=1.0),
        ready(B, leases=1, last_used=2.0),
        ModelUse(C, waiting=1),
    ]
    assert plan(models, 2) == Plan(wait=(C,), paused=frozenset({A}))


def test_a_model_whose_requests_can_wait_is_unloaded_under_them_when_its_slice_is_over() -> None:
    held = attrs.evolve(ready(A, leases=3, waiting=2), suspendable=True)
    assert plan([held, ModelUse(B, waiting=1)], 1) == Plan(wait=(B,), unload=(A,))
    assert plan([attrs.evolve(held, slice_left=0.5), ModelUse(B, waiting=1)], 1) == Plan(wait=(B,))


def test_a_time_slice_is_at_least_as_long_as_the_load_was() -> None:
    held = ModelUse(A, GRANTED, ready=True, leases=1, slice_left=0.5)
    assert plan([held, ModelUse(B, waiting=1)], 1) == Plan(wait=(B,))


def test_a_load_that_nobody_waits_for_any_more_is_abandoned_when_its_room_is_needed() -> None:
    wanted = ModelUse(B, waiting=1)
    assert plan([ModelUse(A, GRANTED), wanted], 1) == Plan(wait=(B,), unload=(A,))
    assert plan([ModelUse(A, GRANTED, waiting=1), wanted], 1) == Plan(wait=(B,))


def test_a_hung_model_keeps_its_room() -> None:
    models = [ModelUse(A, GRANTED, waiting=1, hung=True), ModelUse(B, waiting=1)]
    assert plan([*models, ready(C, leases=1)], 2) == Plan(wait=(B,), paused=frozenset({C}))


def test_nobody_waits_for_room_that_only_hung_models_have() -> None:
    models = [ModelUse(A, GRANTED, hung=True), ModelUse(B, GRANTED, hung=True), ModelUse(C, waiting=1)]
    assert plan(models, 2) == Plan(refused=(C,))
    assert plan(models, 3) == Plan(load=(C,))


uses = st.lists(
    st.builds(
        ModelUse,
        st.builds(ModelKey, st.sampled_from("abcdef")),
        st.sampled_from(Room),
        ready=st.booleans(),
        leases=st.integers(0, 3),
        suspendable=st.booleans(),
        waiting=st.integers(0, 3),
        last_used=st.floats(0, 10),
        waiting_since=st.floats(0, 10),
        slice_left=st.floats(-1, 1),
        hung=st.booleans(),
    ),
    unique_by=lambda use: use.key,
)


@given(uses, st.integers(1, 4))
def test_whatever_the_situation_no_lease_is_broken_and_no_room_given_twice(
    models: list[ModelUse], max_loaded_models: int
) -> None:
    decided = plan(models, max_loaded_models)
    by_key = {model.key: model for model in models}
    resident = sum(model.room is not NONE for model in models)
    assert len(decided.load) <= max(0, max_loaded_models - resident)
    assert all(by_key[key].room is NONE and by_key[key].waiting for key in (*decided.load, *decided.wait))
    assert all(by_key[key].room is GRANTED for key in (*decided.unload, *decided.paused))
    assert all(by_key[key].suspendable or by_key[key].leases == 0 for key in decided.unload)
    assert all(by_key[key].slice_left <= 0 or by_key[key].leases == 0 for key in decided.unload)
    assert all(by_key[key].ready for key in decided.paused)
    assert not decided.unload or decided.wait
    assert not set(decided.unload) & decided.paused

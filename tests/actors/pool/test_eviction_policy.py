"""Eviction policy: the choice of models to load, pause, unload and refuse."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.pool.eviction_policy import LARGE, MAX_ATTEMPTS, MEMORY_TIMEOUT, next_expiry, plan
from greenroom.actors.pool.pool_events import Decided, HeldReleased, KeepAliveSet, RequestsLeft, apply
from greenroom.actors.pool.pool_state import ModelUse, Plan, PoolState, Reason, Refusal, Residency
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState

A, B, C, D = (ModelKey(name) for name in "abcd")
NONE, OPENING, GRANTED, RECLAIMED = Residency
NOW = 1000.0


def ready(key: ModelKey, leases: int = 0, tickets: int = 0, last_used: float = 0.0, **more: Any) -> ModelUse:
    fields = {"state": ModelState.READY, "need": 1, **more}
    return ModelUse(key, GRANTED, leases=leases, tickets=tickets, last_used=last_used, **fields)


def wanted(key: ModelKey, need: int | None = 1, since: float = 0.0, **more: Any) -> ModelUse:
    return ModelUse(key, tickets=1, need=need, waiting_since=since, **more)


def decide(*models: ModelUse, most: int | None = None, limit: int | None = None, **more: Any) -> Plan:
    """Return the plan without its attributions, which have tests of their own."""
    known = {model.key: model for model in models}
    decided = plan(PoolState(known, NOW, limit, most, **more))
    return attrs.evolve(decided, beneficiaries=(), trim=(), trimmed_for=None)


def test_what_is_wanted_is_loaded_while_there_is_room() -> None:
    models = [ready(A, leases=1), wanted(B), ModelUse(C)]
    assert decide(*models, most=2) == Plan(load=(B,))
    assert decide(*models, limit=2) == Plan(load=(B,))


def test_a_model_of_unknown_size_is_opened_first() -> None:
    assert decide(ready(A, need=10), wanted(B, need=None), limit=10) == Plan(open=(B,))
    assert decide(attrs.evolve(wanted(B, need=None), residency=OPENING)) == Plan()
    assert decide(attrs.evolve(wanted(B, need=5), residency=OPENING), limit=5) == Plan(load=(B,))


def test_nothing_is_unloaded_for_a_model_before_its_files_are_judged() -> None:
    idle, unknown = [ready(A), ready(B)], wanted(C, need=None)
    assert decide(*idle, unknown, most=2) == decide(*idle, unknown, limit=2) == Plan(open=(C,))
    opening = attrs.evolve(unknown, residency=OPENING)
    assert decide(*idle, opening, most=2) == Plan()
    assert decide(ready(A), opening, wanted(D), most=2) == Plan(load=(D,))
    opened = attrs.evolve(opening, need=1)
    assert decide(*idle, opened, most=2) == Plan(wait=(C,), unload=(A,))
    too_large = decide(*idle, attrs.evolve(opened, need=3), most=2, limit=2)
    assert (too_large.unload, too_large.refused) == ((), (Refusal(C, Reason.TOO_LARGE, 3, 2),))


def test_a_preload_that_gives_its_place_up_is_not_loaded_beside() -> None:
    preload = ModelUse(B, OPENING, ModelState.LOADING, need=1, preload=True)
    short = wanted(A, retry_at=NOW + 1)
    assert decide(short, preload, most=1, limit=9) == Plan(wait=(A,), unload=(B,))


def test_the_longest_wait_is_served_first() -> None:
    models = [wanted(A, since=5.0), wanted(B, since=3.0)]
    assert decide(*models, most=1) == Plan(load=(B,), wait=(A,))
    assert decide(*models, limit=1) == Plan(load=(B,), wait=(A,))


def test_the_least_recently_used_idle_model_makes_room() -> None:
    models = [ready(A, last_used=2.0), ready(B, last_used=1.0), wanted(C)]
    assert decide(*models, most=2) == Plan(wait=(C,), unload=(B,))
    assert decide(*models, limit=2) == Plan(wait=(C,), unload=(B,))


def test_no_model_is_refused_beside_a_pinned_one_for_bytes_that_are_only_estimated() -> None:
    models = ready(A, need=6, pinned=True), wanted(B, 9, estimated=5)
    state = PoolState({model.key: model for model in models}, NOW, 10)
    assert plan(state).load == (B,)
    assert apply(state, Decided(plan(state))).models[B].nbytes == 4
    assert decide(*models, limit=9).refused[0].reason is Reason.TOO_LARGE
    roomy = attrs.evolve(state, limit=12)
    assert apply(roomy, Decided(plan(roomy))).models[B].nbytes == 6


def test_a_model_that_is_quick_to_load_again_leaves_before_a_large_one() -> None:
    large, small = ready(A, last_used=0.0, need=30_000), ready(B, last_used=NOW - 60, need=300)
    assert decide(large, small, wanted(C, 300), limit=30_300).unload == (B,)


def test_a_small_model_never_evicts_a_large_one_while_there_is_other_room() -> None:
    large = ready(A, last_used=-1e9, need=30_000)
    models = [large, ready(B, last_used=NOW, need=200), ready(C, last_used=NOW, need=100)]
    assert set(decide(*models, wanted(D, 300), limit=30_300).unload) == {B, C}
    assert decide(large, wanted(D, 300), limit=30_100).unload == (A,)


def test_no_more_models_leave_than_make_the_room() -> None:
    models = [ready(A, last_used=0.0, need=2), ready(B, last_used=900.0, need=6), wanted(C, 6)]
    assert decide(*models, limit=8) == Plan(wait=(C,), unload=(B,))


def test_room_that_is_being_made_is_not_made_twice() -> None:
    models = [ready(A), ModelUse(B, RECLAIMED, need=1), wanted(C)]
    assert decide(*models, most=2) == Plan(wait=(C,))
    assert decide(*models, limit=2) == Plan(wait=(C,))


def test_a_later_model_overtakes_only_where_it_takes_nothing_from_an_earlier_one() -> None:
    held = ready(A, leases=1, need=6, load_seconds=9.0, changed=NOW)
    large = wanted(B, 7, since=1.0)
    assert decide(held, large, wanted(C, 2, since=2.0), limit=10).load == ()
    leaving = attrs.evolve(held, changed=0.0)
    assert decide(leaving, large, wanted(C, 3, since=2.0), limit=10).load == (C,)
    assert decide(leaving, large, wanted(C, 4, since=2.0), limit=10).load == ()


def test_a_model_that_is_held_is_paused_and_not_unloaded() -> None:
    models = [ready(A, leases=3, tickets=2, last_used=1.0), ready(B, leases=1, last_used=2.0), wanted(C)]
    assert decide(*models, most=2) == Plan(wait=(C,), paused=frozenset({A}))
    assert decide(*models, limit=2) == Plan(wait=(C,), paused=frozenset({A}))


def test_a_model_whose_requests_can_wait_is_unloaded_under_them_when_its_slice_is_over() -> None:
    held = ready(A, leases=3, tickets=2, suspendable=True)
    assert decide(held, wanted(B), most=1) == Plan(wait=(B,), unload=(A,))
    held = attrs.evolve(held, changed=NOW, load_seconds=0.5)
    assert decide(held, wanted(B), most=1) == Plan(wait=(B,))


def test_a_time_slice_is_at_least_as_long_as_the_load_was() -> None:
    held = ready(A, leases=1, changed=NOW - 4.0, load_seconds=4.5)
    assert decide(held, wanted(B), limit=1) == Plan(wait=(B,))


def test_a_request_of_low_priority_interrupts_no_other_model_before_its_turn() -> None:
    held, suspendable = ready(A, leases=1), ready(B, leases=1, suspendable=True)
    early = wanted(C, since=NOW + 1.0)
    for other in (held, suspendable):
        assert decide(other, early, limit=1) == Plan(wait=(C,))
        assert decide(other, wanted(C, since=NOW), limit=1) != Plan(wait=(C,))
    assert decide(ready(A), early, limit=1) == Plan(wait=(C,), unload=(A,))
    assert decide(early, wanted(D, since=NOW), limit=1) == Plan(load=(D,), wait=(C,))


def test_a_load_that_nobody_waits_for_any_more_is_abandoned_when_its_room_is_needed() -> None:
    loading = ModelUse(A, GRANTED, ModelState.LOADING, need=1)
    assert decide(loading, wanted(B), limit=1) == Plan(wait=(B,), unload=(A,))
    assert decide(attrs.evolve(loading, tickets=1), wanted(B), limit=1) == Plan(wait=(B,))
    opened = ModelUse(A, OPENING, ModelState.LOADING, need=1)
    assert decide(opened, limit=1) == Plan(load=(A,))
    assert decide(opened, wanted(B), limit=1) == Plan(load=(B,), unload=(A,))


def test_a_model_that_takes_no_room_is_loaded_at_once_and_takes_nothing_from_others() -> None:
    far, held = wanted(D, need=None, takes_room=False), ready(A, leases=1, need=10)
    assert decide(held, far, most=1, limit=10) == Plan(load=(D,))
    # Not even a hang, or a wait for memory that other programs use, is of any matter to it.
    hung = ModelUse(A, GRANTED, hung=True, need=10)
    assert decide(hung, wanted(B, 1), far, most=1, limit=10, available=0) == Plan(
        load=(D,), refused=(Refusal(B, Reason.HUNG, 1, 0),)
    )
    # And it never makes room for others: neither its bytes nor its place would help them.
    idle = ready(D, need=None, takes_room=False)
    assert decide(idle, wanted(B, 10), most=1, limit=10) == Plan(load=(B,))
    assert decide(idle, ready(A, need=10), wanted(B, 10), most=1, limit=10) == Plan(wait=(B,), unload=(A,))
    assert decide(idle, held, wanted(B, 10), limit=10) == Plan(wait=(B,), paused=frozenset({A}))


def test_a_hung_model_keeps_its_room() -> None:
    models = [ModelUse(A, GRANTED, tickets=1, hung=True, need=1), wanted(B)]
    assert decide(*models, ready(C, leases=1), most=2) == Plan(wait=(B,), paused=frozenset({C}))
    assert decide(*models, ready(C, leases=1), limit=2) == Plan(wait=(B,), paused=frozenset({C}))


def test_nobody_waits_for_room_that_only_hung_models_have() -> None:
    models = [ModelUse(A, GRANTED, hung=True, need=1), ModelUse(B, GRANTED, hung=True, need=1), wanted(C)]
    assert decide(*models, most=2) == Plan(refused=(Refusal(C, Reason.HUNG, 1, (1 << 62) - 2),))
    assert decide(*models, limit=2) == Plan(refused=(Refusal(C, Reason.HUNG, 1, 0),))
    assert decide(*models, most=3) == Plan(load=(C,))


def test_a_pinned_model_stays_and_what_does_not_fit_beside_it_is_refused_at_once() -> None:
    pinned, idle = ready(A, need=6, pinned=True), ready(B, need=2, last_used=1.0)
    assert decide(pinned, idle, wanted(C, 4), limit=10) == Plan(wait=(C,), unload=(B,))
    refused = Refusal(C, Reason.TOO_LARGE, 5, 4)
    assert decide(pinned, idle, wanted(C, 5), limit=10) == Plan(refused=(refused,))


def test_what_does_not_fit_into_an_empty_server_is_refused_and_frees_nothing() -> None:
    refused = Refusal(C, Reason.TOO_LARGE, 11, 10)
    assert decide(ready(A), ready(B), wanted(C, 11), limit=10) == Plan(refused=(refused,))


def test_memory_that_other_programs_use_is_waited_for_and_then_refused() -> None:
    model, free = wanted(B, 5), {"limit": 10, "available": 4}
    assert decide(model, limit=10, available=5) == Plan(load=(B,))
    assert decide(model, **free) == Plan(wait=(B,), short=frozenset({B}))
    waited = attrs.evolve(model, short_since=NOW - MEMORY_TIMEOUT)
    assert decide(waited, **free) == Plan(refused=(Refusal(B, Reason.OTHERS, 5, 4),))
    # What the pool can free itself is freed first, and what is on its way out is awaited.
    assert decide(ready(A), model, **free) == Plan(wait=(B,), unload=(A,))
    assert decide(ModelUse(A, RECLAIMED, need=1), model, **free) == Plan(wait=(B,))
    # A load in progress has not taken its memory yet.
    loading = ModelUse(A, GRANTED, ModelState.LOADING, tickets=1, need=2)
    assert decide(loading, model, limit=10, available=6) == Plan(wait=(B,), short=frozenset({B}))


def test_after_a_refusal_of_the_account_more_room_is_made() -> None:
    model = wanted(C, 5, shortfall=2)
    assert decide(ready(A, need=2), ready(B, need=3), model, limit=10) == Plan(wait=(C,), unload=(A,))
    assert decide(ready(B, need=3), model, limit=10) == Plan(load=(C,))
    alone = attrs.evolve(model, shortfall=50, retry_at=NOW + 0.1)
    assert decide(alone, limit=10) == Plan(wait=(C,), short=frozenset({C}))
    assert decide(attrs.evolve(alone, retry_at=NOW), limit=10) == Plan(load=(C,))


def decide_all(*models: ModelUse, limit: int | None = None, **more: Any) -> Plan:
    return plan(PoolState({model.key: model for model in models}, NOW, limit, **more))


def test_what_is_unloaded_is_attributed_to_the_model_that_needs_it() -> None:
    first, second = wanted(C, 3, since=1.0), wanted(D, 5, since=2.0)
    decided = decide_all(ready(A, need=4), ready(B, need=6, last_used=NOW), first, second, limit=10)
    assert dict(zip(decided.unload, decided.beneficiaries, strict=True)) == {A: C, B: D}


def test_a_model_that_is_idle_for_its_time_to_live_is_unloaded_unless_it_is_used_or_pinned() -> None:
    idle = ready(A, ttl=10.0, last_used=NOW - 10)
    assert decide(idle) == Plan(expired=(A,))
    for kept in (
        ready(A, ttl=10.0, last_used=NOW - 9),
        ready(A, ttl=10.0, last_used=0.0, changed=NOW - 9),  # loaded without a request
        ready(A, ttl=10.0, last_used=0.0, leases=1),
        ready(A, ttl=0.0, last_used=0.0, tickets=1),
        ready(A, ttl=0.0, last_used=0.0, pinned=True),
        ready(A, last_used=0.0),
        ModelUse(A, GRANTED, ModelState.LOADING, ttl=0.0),
    ):
        assert decide(kept) == Plan()
    state = PoolState({A: idle, B: ready(B, ttl=30.0, last_used=NOW - 10)}, NOW)
    assert next_expiry(state) == NOW
    assert next_expiry(attrs.evolve(state, models={B: state.models[B]})) == NOW + 20
    assert next_expiry(PoolState({A: ready(A)}, NOW)) is None


def test_a_model_whose_time_is_over_makes_room_for_others() -> None:
    idle = ready(A, need=6, ttl=1.0)
    assert decide(idle, ready(B, need=4), wanted(C, 5), limit=10) == Plan(wait=(C,), expired=(A,))


def test_an_operators_unload_waits_for_leases_and_admits_nobody_meanwhile() -> None:
    leaving = ready(A, leaving="asked", pinned=True, leases=1)
    assert decide(leaving) == Plan(paused=frozenset({A}))
    assert decide(attrs.evolve(leaving, suspendable=True)) == Plan(paused=frozenset({A}))
    assert decide(attrs.evolve(leaving, leases=0)) == Plan(expired=(A,))
    assert decide(attrs.evolve(leaving, leases=0, tickets=2, paused=True)) == Plan(expired=(A,))
    # Those that waited for its load when it was asked are served first.
    assert decide(attrs.evolve(leaving, leases=0, tickets=2)) == Plan()
    loading = ModelUse(A, GRANTED, ModelState.LOADING, leaving="asked")
    assert decide(loading) == Plan(expired=(A,))
    assert decide(attrs.evolve(loading, tickets=1)) == Plan()
    assert decide(attrs.evolve(leaving, residency=RECLAIMED, leases=0)) == Plan()


def test_models_are_preloaded_one_after_another_into_free_memory() -> None:
    first, second = (ModelUse(key, preload=True) for key in (A, B))
    assert decide(first, second, most=2) == Plan(open=(A,))
    opened = attrs.evolve(first, residency=OPENING)
    assert decide(opened, second, limit=10) == Plan()
    assert decide(attrs.evolve(opened, need=4), second, limit=10) == Plan(load=(A,))
    loading = attrs.evolve(first, residency=GRANTED, state=ModelState.LOADING, need=4)
    assert decide(loading, second, limit=10) == Plan(open=(B,))
    too_large = attrs.evolve(second, residency=OPENING, need=7)
    assert decide(ready(A, need=4), too_large, limit=10) == Plan(unload=(B,))
    assert decide(ready(A, need=4), attrs.evolve(second, tickets=1, need=7), limit=10).unload == (A,)


def test_before_memory_that_others_use_is_refused_loaded_models_release_their_caches() -> None:
    busy = ready(A, leases=1, need=2)
    decided = decide_all(busy, wanted(B, 5), limit=10, available=4)
    assert (decided.trim, decided.trimmed_for) == ((A,), B)
    assert decided.short == {B}
    short = wanted(B, 5, short_since=NOW - 1)
    assert decide_all(busy, short, limit=10, available=4).trim == ()


def test_a_wait_for_memory_goes_on_while_another_model_leaves() -> None:
    short, leaving = wanted(B, 5, short_since=NOW - 20), ModelUse(A, RECLAIMED, need=1)
    assert decide(short, leaving, limit=10, available=4).short == {B}
    assert decide(wanted(B, 5), leaving, limit=10, available=4).short == frozenset()


def test_the_wish_of_a_request_that_left_does_not_outlive_it() -> None:
    state = PoolState({A: wanted(A, ttl=300.0, usual_ttl=300.0)}, NOW)
    asked = apply(state, KeepAliveSet(A, 0.0))
    assert asked.models[A].ttl == 0
    assert apply(asked, RequestsLeft(A, 1)).models[A].ttl == 300
    loaded = PoolState({A: ready(A, leases=1, tickets=1, ttl=0.0, usual_ttl=300.0)}, NOW)
    assert apply(loaded, RequestsLeft(A, 1)).models[A].ttl == 0


def test_the_accounts_refusals_end_after_a_number_of_attempts() -> None:
    tried = wanted(B, 5, shortfall=50, left=3, short_since=NOW, attempts=MAX_ATTEMPTS)
    assert decide(tried, limit=10) == Plan(refused=(Refusal(B, Reason.TOO_LARGE, 5, 3),))


uses = st.lists(
    st.builds(
        ModelUse,
        st.builds(ModelKey, st.sampled_from("abcdef")),
        st.sampled_from(Residency),
        st.sampled_from([ModelState.IDLE, ModelState.LOADING, ModelState.READY]),
        changed=st.floats(NOW - 2, NOW),
        load_seconds=st.floats(0, 3),
        leases=st.integers(0, 3),
        suspendable=st.booleans(),
        tickets=st.integers(0, 3),
        last_used=st.floats(0, NOW),
        waiting_since=st.floats(0, NOW),
        hung=st.booleans(),
        pinned=st.booleans(),
        ttl=st.none() | st.floats(0, 2 * NOW),
        preload=st.booleans(),
        leaving=st.sampled_from(("", "asked")),
        need=st.none() | st.integers(1, 20),
        estimated=st.integers(0, 5),
    ),
    unique_by=lambda use: use.key,
)
limits = st.none() | st.integers(1, 40)
states = st.builds(
    lambda models, most, limit: PoolState({use.key: use for use in models}, NOW, limit, most),
    uses,
    st.none() | st.integers(1, 4),
    limits,
)
pressed_states = st.builds(
    lambda state, available: attrs.evolve(state, available=available), states, st.none() | st.integers(0, 40)
)


def resident(state: PoolState) -> list[ModelUse]:
    return [model for model in state.models.values() if model.residency is not NONE]


@given(states)
def test_no_lease_is_broken_and_no_pinned_or_hung_model_leaves(
    state: PoolState,
) -> None:
    decided, models = plan(state), state.models
    assert all(models[key].residency in (GRANTED, OPENING) for key in decided.unload)
    assert all(models[key].suspendable or not models[key].leases for key in decided.unload)
    assert not any(models[key].pinned and not models[key].leaving for key in decided.paused)
    given_up = [key for key in decided.unload if models[key].residency is OPENING]
    assert not any(models[key].pinned or models[key].hung for key in decided.unload if key not in given_up)
    assert all(models[key].slice_left(NOW) <= 0 or not models[key].leases for key in decided.unload)
    paused = [models[key] for key in decided.paused if not models[key].leaving]
    assert all(model.ready and model.slice_left(NOW) <= 0 for model in paused)
    assert len(set(decided.unload)) == len(decided.unload)
    assert not set(decided.unload) & {*decided.paused, *decided.load}
    assert decided.wait or all(models[key].residency is OPENING for key in decided.unload)
    assert len(decided.unload) == len(decided.beneficiaries)
    for key in decided.expired:
        assert not models[key].leases
        assert not models[key].hung
        assert models[key].residency in (GRANTED, OPENING)
        assert models[key].leaving or not (models[key].pinned or models[key].tickets)
    assert not set(decided.expired) & {*decided.unload, *decided.load, *decided.open}


@given(states, st.floats(0, 2 * NOW))
def test_nothing_expires_before_the_time_that_is_foretold_and_everything_does_then(
    state: PoolState, later: float
) -> None:
    calm = {
        key: attrs.evolve(model, leaving="")
        for key, model in state.models.items()
        if model.residency is not OPENING or model.state is not ModelState.READY
    }
    state = attrs.evolve(state, models=calm, now=state.now + later)
    expiry, decided = next_expiry(state), plan(state)
    assert bool(decided.expired) is (expiry is not None and expiry <= state.now)
    left = next_expiry(apply(state, Decided(decided)))
    assert left is None or left > state.now


@given(states)
def test_whatever_the_situation_no_more_is_granted_than_there_is(state: PoolState) -> None:
    decided, models = plan(state), state.models
    chosen = [models[key] for key in decided.load if not models[key].preload]
    if state.max_loaded_models is not None and chosen:
        others = [each for each in resident(state) if each not in chosen and not each.is_unknown]
        assert len(others) + len(chosen) <= state.max_loaded_models
    if state.limit is not None and decided.load:
        granted = sum(state.need_of(models[key]) for key in decided.load)
        assert sum(model.nbytes for model in resident(state)) + granted <= state.limit


@given(states)
def test_every_waiting_model_is_loaded_or_waits_or_is_refused(state: PoolState) -> None:
    decided = plan(state)
    named = [*decided.open, *decided.load, *decided.wait, *(refusal.key for refusal in decided.refused)]
    assert len(named) == len(set(named))
    waiting = {model.key for model in state.models.values() if model.waits_for_memory}
    assert waiting <= set(named)


@given(uses, st.integers(1, 40), st.integers(1, 60))
def test_an_idle_server_admits_what_an_empty_one_admits(
    models: list[ModelUse], limit: int, need: int
) -> None:
    idle = [attrs.evolve(use, leases=0, tickets=0, hung=False, pinned=False, preload=False) for use in models]
    state = PoolState({use.key: use for use in idle} | {D: wanted(D, need)}, NOW, limit)
    while True:
        decided = plan(state)
        if not decided.wait:
            break
        gone = {key: ModelUse(key) for key in state.models if state.models[key].residency is RECLAIMED}
        gone |= {key: ModelUse(key) for key in (*decided.unload, *decided.expired)}
        assert gone  # each wait has its reason
        state = attrs.evolve(state, models={**state.models, **gone})
    admitted = need <= limit
    assert (D in decided.load) is admitted
    assert [refusal.key for refusal in decided.refused] == ([] if admitted else [D])


@given(states, st.sampled_from([NONE, GRANTED, RECLAIMED]), st.integers(0, 1))
def test_a_model_that_takes_no_room_changes_no_decision_about_others(
    state: PoolState, residency: Residency, tickets: int
) -> None:
    others = {key: use for key, use in state.models.items() if key != D}
    far = ModelUse(D, residency, ModelState.READY, tickets=tickets, takes_room=False)
    alone = plan(attrs.evolve(state, models=others))
    together = plan(attrs.evolve(state, models={**others, D: far}))
    loaded = tuple(key for key in together.load if key != D)
    assert attrs.evolve(together, load=loaded) == alone
    assert (D in together.load) is far.waits_for_memory


@given(states, st.integers(41, 60))
def test_what_can_never_fit_evicts_nothing(state: PoolState, need: int) -> None:
    models = {
        key: attrs.evolve(
            use, tickets=0, leaving="", residency=NONE if use.residency is OPENING else use.residency
        )
        for key, use in state.models.items()
        if key != D
    }
    refused = plan(attrs.evolve(state, models={**models, D: wanted(D, need)}, limit=state.limit or 40))
    assert [refusal.key for refusal in refused.refused] == [D]
    assert (refused.unload, refused.paused, refused.load) == ((), frozenset(), ())


@given(uses, st.integers(1, 3), st.integers(1, 40))
def test_a_model_far_larger_than_the_need_leaves_only_if_the_others_do_not_suffice(
    models: list[ModelUse], need: int, limit: int
) -> None:
    others = [attrs.evolve(use, tickets=0) for use in models if use.key != D and use.residency is not OPENING]
    state = PoolState({use.key: use for use in others} | {D: wanted(D, need)}, NOW, limit)
    leaving = [state.models[key] for key in plan(state).unload]
    if any(use.nbytes > LARGE * need for use in leaving):
        small = [use for use in others if use.idle and use.nbytes <= LARGE * need]
        used = sum(use.nbytes for use in others if use.residency is GRANTED)
        assert used - sum(use.nbytes for use in small) + need > limit


@given(pressed_states, st.integers(1, 1 << 40))
def test_held_bytes_go_before_any_model_leaves_for_memory_and_make_no_load_wait_or_fail(
    state: PoolState, held: int
) -> None:
    holding = attrs.evolve(state, held=held)
    decided, free = plan(holding), plan(state)
    if decided.held_for is None:
        assert decided == free  # they count for nothing
        return
    lacking = state.models[decided.held_for]
    assert lacking.key not in (*free.load, *free.open)
    assert set(decided.unload) <= set(free.unload)
    assert decided.trim == ()
    assert {refusal.key for refusal in decided.refused} <= {refusal.key for refusal in free.refused}
    # While they are released nothing leaves for them either, and afterwards everything is as without them.
    releasing = apply(holding, Decided(decided))
    assert plan(releasing).held_for is None
    assert set(plan(releasing).unload) <= set(free.unload)
    after = apply(apply(holding, Decided(Plan(held_for=lacking.key))), HeldReleased(lacking.key, held))
    assert after.held == 0
    assert attrs.evolve(plan(after), refused=()) == attrs.evolve(free, refused=())
    refused = [attrs.evolve(refusal, freed=0) for refusal in plan(after).refused]
    assert refused == [attrs.evolve(refusal, freed=0) for refusal in free.refused]


@given(pressed_states, st.floats(0, 2 * MEMORY_TIMEOUT))
def test_nobody_is_refused_for_memory_of_others_that_is_there_now(state: PoolState, waited: float) -> None:
    models = {
        key: attrs.evolve(use, short_since=NOW - waited) if use.waits_for_memory else use
        for key, use in state.models.items()
    }
    state = attrs.evolve(state, models=models)
    for refusal in plan(state).refused:
        if refusal.reason is Reason.OTHERS:
            assert waited >= MEMORY_TIMEOUT
            assert refusal.required > (state.available or 0) - sum(
                use.nbytes for use in models.values() if use.loads
            )
    assert not any(refusal.reason is Reason.OTHERS for refusal in plan(attrs.evolve(state, held=1)).refused)

"""Sequences of the pool's events and decisions, with models that do as they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.pool.eviction_policy import MAX_ATTEMPTS, MEMORY_TIMEOUT, next_expiry, plan
from greenroom.actors.pool.pool_events import (
    ActorStopped,
    Configured,
    Decided,
    HeldReleased,
    KeepAliveSet,
    LeaseGranted,
    LeaseReleased,
    MemoryRead,
    PoolEvent,
    Reported,
    RequestQueued,
    RequestsFailed,
    RequestsLeft,
    UnloadAsked,
    apply,
)
from greenroom.actors.pool.pool_state import Plan, PoolState, Reason, Refusal, Residency
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import insufficient_memory
from greenroom.schemas.protocols.model_protocol import (
    LoadRefused,
    ModelReport,
    Sized,
    StateChanged,
    Trimmed,
    Unloaded,
)

LIMIT = 10
LOAD_SECONDS = 2.0


@attrs.define
class World:
    """A pool whose models carry out each command in a moment, and whose requests take another.

    Args:
        sizes: Bytes that each model needs.
        available: Bytes that other programs leave; None if unknown.
        held: Bytes that unloaded models have left.
        granted: Number of leases granted to each model.
        refusals: Refusals so far.
    """

    sizes: dict[str, int]
    state: PoolState = PoolState(limit=LIMIT)
    available: int | None = None
    held: int = 0
    granted: Counter[str] = attrs.field(factory=Counter)
    refusals: list[Refusal] = attrs.field(factory=list)

    def apply(self, *events: PoolEvent) -> None:
        for event in events:
            self.state = apply(self.state, event)
            used = sum(model.nbytes for model in self.state.models.values())
            assert self.state.limit is None or used <= self.state.limit
            models = self.state.models.values()
            assert not any(model.leaving and model.residency is Residency.NONE for model in models)

    def report(self, name: str, *reports: ModelReport) -> None:
        self.apply(*(Reported(ModelKey(name), report, self.state.now) for report in reports))

    def ask(self, names: Iterable[str]) -> None:
        self.apply(*(RequestQueued(ModelKey(name), self.state.now) for name in names))

    def round(self, seconds: float = 1.0) -> Plan:
        """Decide, carry out the decisions, grant leases, and end them all."""
        self.apply(MemoryRead(self.available, self.state.now + seconds, self.held))
        decided = plan(self.state)
        self.apply(Decided(decided))
        if decided.held_for is not None:
            self.apply(HeldReleased(decided.held_for, self.held))
            self.held = 0
        for key in decided.trim:
            self.report(key.model, Trimmed(0))
        for key in decided.open:
            loading = StateChanged(ModelState.LOADING)
            self.report(key.model, loading, Sized(self.sizes[key.model], LIMIT))
        for key in decided.load:
            self.report(key.model, StateChanged(ModelState.LOADING))
            self.apply(MemoryRead(self.available, self.state.now + LOAD_SECONDS, self.held))
            self.report(key.model, StateChanged(ModelState.READY))
        for key in (*decided.unload, *decided.expired):
            left = self.state.models[key]
            assert not left.leases
            assert left.leaving or not left.pinned or left.state is not ModelState.READY
            self.report(key.model, Unloaded())
        for refusal in decided.refused:
            self.refusals.append(refusal)
            self.apply(RequestsFailed(refusal.key))
        self._end_leases()
        for key, model in self.state.models.items():
            while self.state.models[key].tickets and model.ready and not model.paused:
                self.granted[key.model] += 1
                self.apply(LeaseGranted(key, self.state.now))
        return decided

    def _end_leases(self) -> None:
        for key in self.state.models:
            while self.state.models[key].leases:
                self.apply(LeaseReleased(key, self.state.now))

    @property
    def waits(self) -> bool:
        """True if any request has been neither granted nor refused."""
        return any(model.tickets for model in self.state.models.values())


worlds = st.builds(World, st.fixed_dictionaries({name: st.integers(1, LIMIT + 2) for name in "abcde"}))
arrivals = st.lists(st.lists(st.sampled_from("abcde"), max_size=3), max_size=12)


@given(worlds, arrivals)
def test_every_request_is_granted_or_refused_in_bounded_steps(world: World, rounds: list[list[str]]) -> None:
    for names in rounds:
        world.ask(names)
        world.round()
    left = 0
    while world.waits:
        world.round()
        left += 1
        assert left <= 8 * len(world.sizes)
    asked = Counter(name for names in rounds for name in names)
    refused = {refusal.key.model for refusal in world.refusals}
    assert refused == {name for name in asked if world.sizes[name] > LIMIT}
    assert {name: asked[name] for name in asked if name not in refused} == dict(world.granted)


memories = st.tuples(st.none() | st.integers(0, LIMIT), st.integers(0, LIMIT))


@given(worlds, st.lists(st.tuples(st.lists(st.sampled_from("abcde"), max_size=3), memories), max_size=12))
def test_whatever_others_take_every_request_is_granted_or_refused_in_bounded_steps(
    world: World, rounds: list[Any]
) -> None:
    for names, (available, held) in rounds:
        world.available, world.held = available, world.held + held
        world.ask(names)
        world.round()
    left = 0
    while world.waits:
        world.round()
        left += 1
        assert left <= (MEMORY_TIMEOUT + 8) * len(world.sizes)
    for refusal in world.refusals:
        size = world.sizes[refusal.key.model]
        assert (refusal.reason is Reason.TOO_LARGE) is (size > LIMIT)
        assert size > refusal.available
    asked = Counter(name for names, _ in rounds for name in names)
    refused = {refusal.key.model for refusal in world.refusals}
    assert set(asked) == refused | {name for name, count in world.granted.items() if count}


@given(st.integers(6, LIMIT), st.integers(6, LIMIT))
def test_two_models_that_alternate_in_room_for_one_each_get_turns(first: int, second: int) -> None:
    world = World({"a": first, "b": second})
    for _ in range(60):
        world.ask("ab")
        world.round()
    assert min(world.granted.values()) >= 20
    assert world.granted.keys() == {"a", "b"}


@given(worlds, arrivals)
def test_an_idle_server_admits_whatever_an_empty_one_admits(world: World, rounds: list[list[str]]) -> None:
    for names in rounds:
        world.ask(names)
        world.round()
    while world.waits:
        world.round()
    world.granted.clear()
    for name, size in world.sizes.items():
        world.refusals.clear()
        world.ask(name)
        while world.waits:
            world.round()
        assert (world.granted[name] == 1) is (size <= LIMIT)
        assert [refusal.reason for refusal in world.refusals] == [Reason.TOO_LARGE] * (size > LIMIT)


kinds_of_wishes = st.sampled_from(["unload", "keep", "none"])
wishes = st.lists(
    st.tuples(st.sampled_from("abcde"), kinds_of_wishes, st.none() | st.floats(0, 9)), max_size=3
)


@given(worlds, st.lists(st.tuples(st.lists(st.sampled_from("abcde"), max_size=3), wishes), max_size=12))
def test_pins_and_times_to_live_break_no_promise(world: World, rounds: list[Any]) -> None:
    world.apply(Configured(ModelKey("a"), pinned=True, ttl=1.0), Configured(ModelKey("b"), ttl=3.0))
    for names, wanted in rounds:
        world.ask(names)
        for name, wish, ttl in wanted:
            if wish == "unload":
                world.apply(UnloadAsked(ModelKey(name)))
            elif wish == "keep":
                world.apply(KeepAliveSet(ModelKey(name), ttl))
        world.round()
    left = 0
    while world.waits:
        world.round()
        left += 1
        assert left <= 8 * len(world.sizes)
    room = LIMIT - world.sizes["a"] if world.sizes["a"] <= LIMIT else LIMIT
    for refusal in world.refusals:  # beside the pinned model, or never
        assert world.sizes[refusal.key.model] > room
    asked = Counter(name for names, _ in rounds for name in names)
    granted = {name for name, count in world.granted.items() if count}
    assert granted <= set(asked)
    assert {name for name in asked if world.sizes[name] <= room} <= granted
    for _ in range(2):  # the last leases end, and unloads that waited for them follow
        world.round()
    assert not any(model.leaving for model in world.state.models.values())
    # Once everybody has left, whoever has a time to live leaves too, except the pinned model.
    while (expiry := next_expiry(world.state)) is not None:
        world.round(max(0.0, expiry - world.state.now) + 1e-6)
    for name, model in ((key.model, model) for key, model in world.state.models.items()):
        assert not model.ready or name == "a" or model.ttl is None


def test_a_model_that_the_account_refuses_is_tried_again_and_refused_in_the_end() -> None:
    key, world = ModelKey("a"), World({"a": 5})
    world.ask("a")
    world.round()
    refused = LoadRefused(insufficient_memory("a", 5, 3), 5, 3)
    tries, began = 0, world.state.now
    while not world.refusals:
        world.apply(MemoryRead(None, world.state.now + 0.3))
        decided = plan(world.state)
        world.apply(Decided(decided))
        world.refusals += decided.refused
        if decided.load:
            tries += 1
            world.report("a", StateChanged(ModelState.WAITING), refused)
    assert MEMORY_TIMEOUT <= world.state.now - began < MEMORY_TIMEOUT + 2
    assert 5 < tries <= MAX_ATTEMPTS
    assert world.refusals == [Refusal(key, Reason.TOO_LARGE, 5, 3)]
    world.apply(RequestsFailed(key), ActorStopped(key))
    stopped = world.state.models[key]
    assert (stopped.state, stopped.residency, stopped.need) == (ModelState.IDLE, Residency.NONE, None)
    assert (stopped.shortfall, stopped.short_since, stopped.freed) == (0, None, 0)


def test_a_model_whose_requests_leave_before_it_says_that_it_waits_is_idle() -> None:
    key, world = ModelKey("a"), World({"a": 5})
    world.ask("a")
    world.report("a", StateChanged(ModelState.LOADING), Sized(5, LIMIT))
    world.apply(RequestsLeft(key), ActorStopped(key))
    assert world.state.models[key].state is ModelState.IDLE


def test_what_was_freed_in_vain_is_told() -> None:
    world = World({"a": 4, "b": 7})
    world.ask("a")
    while world.waits:
        world.round()
    world.ask("b")
    while not (decided := world.round()).unload:
        pass
    assert decided.wait == (ModelKey("b"),)
    assert world.state.models[ModelKey("b")].freed == 4
    world.apply(RequestsLeft(ModelKey("b")))
    assert world.state.models[ModelKey("b")].freed == 0
    assert world.state.models[ModelKey("b")].residency is Residency.NONE

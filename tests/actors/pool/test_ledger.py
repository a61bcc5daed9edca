"""The pool's ledger: what it keeps of each model, and what it forgets."""

from __future__ import annotations

from itertools import pairwise

import attrs
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.pool.ledger import MAX_STRANGERS, MIN_AGE, Ledger, MemoryReading
from greenroom.actors.pool.pool_events import PinSet, PoolEvent
from greenroom.actors.pool.pool_state import PoolState
from greenroom.actors.pool.residence_rules import KeepAliveWishes, ResidenceRule, rule_for
from greenroom.schemas.messages.requests import KeepAlive
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.actors.pool.test_replay import replay

A, B = ModelKey("a"), ModelKey("b")


@attrs.define
class Rules:
    """Settings that change while a server runs."""

    settings: Settings
    revision: int = 0

    def of(self, model: str) -> ResidenceRule:
        return rule_for(self.settings, model)

    def reload(self, **tables: ModelSettings) -> None:
        self.settings = Settings(model_settings=tuple(tables.items()))
        self.revision += 1


def test_a_pin_set_by_hand_outlives_a_reload_until_the_settings_of_that_model_change() -> None:
    rules = Rules(Settings(model_settings=(("b", ModelSettings(pinned=True)),)))
    ledger = Ledger(Settings(), rules.of, lambda: rules.revision)
    for key, pinned in ((A, True), (B, False)):
        assert ledger[key].use.pinned is not pinned
        ledger.apply(PinSet(key, pinned))
    rules.reload(b=ModelSettings(pinned=True, max_context=64), other=ModelSettings(ttl=5.0))
    ledger.needs_decision(0.0)
    assert [ledger[key].use.pinned for key in (A, B)] == [True, False]
    rules.reload(a=ModelSettings(ttl=9.0), b=ModelSettings(pinned=True, ttl=3.0))
    ledger.needs_decision(0.0)
    told = [(ledger[key].use.pinned, ledger[key].use.ttl) for key in (A, B)]
    assert told == [(False, 9.0), (True, 3.0)]


def test_models_that_only_requests_have_named_are_forgotten_oldest_first() -> None:
    ledger, seen = Ledger(Settings()), list[PoolEvent]()
    ledger.on_change = seen.append
    ledger[A].figures.listed = True
    ledger.apply(PinSet(B, pinned=True))
    for number in range(3 * MAX_STRANGERS):
        assert ledger[ModelKey(f"owner/{number}")].use.key.model == f"owner/{number}"
        ledger.forget_strangers()
    last = [f"owner/{number}" for number in range(2 * MAX_STRANGERS, 3 * MAX_STRANGERS)]
    assert [record.key.model for record in ledger.records] == ["a", "b", *last]
    assert replay(seen, PoolState()) == []
    assert ledger.state.models.keys() <= {record.key for record in ledger.records}


def test_nobodys_wish_cuts_the_time_of_another_user() -> None:
    wishes, gone = KeepAliveWishes(), KeepAlive(0.0)
    assert wishes.record_use("a", gone, 300.0, now=0.0) == 0.0
    assert wishes.record_use("a", None, 300.0, now=1.0) == 0.0  # its own last wish holds
    assert wishes.record_use("b", None, 300.0, now=2.0) == 300.0
    assert wishes.record_use("a", gone, 300.0, now=102.0) == 200.0
    assert wishes.is_kept_by_others("a", 102.0)
    assert not wishes.is_kept_by_others("b", 102.0)
    assert wishes.record_use("a", gone, 300.0, now=303.0) == 0.0
    assert wishes.record_use("x#1", KeepAlive(None), 300.0, now=304.0) is None
    assert wishes.record_use("x#2", gone, 300.0, now=305.0) == 0.0  # unchecked keys of one address


@given(st.floats(0, 2), st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_however_slow_readings_take_one_percent_of_the_time(duration: float, pauses: list[float]) -> None:
    """The first reading, and the one at the end of the time, are not counted."""
    now, spent = 0.0, list[float]()

    def read() -> int:
        nonlocal now
        now += duration
        spent.append(now)
        return len(spent)

    reading = MemoryReading(read, lambda: 7, lambda: now)
    for pause in pauses:
        now += pause
        asked = now
        told = reading.latest(asked)
        assert (told.available, told.now, told.held) == (len(spent), asked, 7)
    between = [later - earlier for earlier, later in pairwise(spent)]
    assert all(gap >= MIN_AGE - 1e-9 and gap >= 99 * duration * (1 - 1e-9) for gap in between)


def test_after_memory_was_freed_it_is_read_anew_at_once() -> None:
    values = iter((5, 9))
    reading = MemoryReading(lambda: next(values), lambda: 0)
    assert reading.latest(1.0).available == 5
    assert reading.latest(1.0 + MIN_AGE / 2).available == 5
    reading.expire()
    assert reading.latest(1.0 + MIN_AGE / 2).available == 9

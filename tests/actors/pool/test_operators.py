"""Plans and news for operators, without a server."""

from __future__ import annotations

import pytest

from greenroom.actors.core.reply import MOST_UNREAD, ReplyStream
from greenroom.actors.pool.eviction_policy import plan_load
from greenroom.actors.pool.ledger import Ledger, MemoryReading
from greenroom.actors.pool.pool_events import MemoryRead, Reported
from greenroom.actors.pool.pool_overview import PoolOverview
from greenroom.actors.pool.pool_state import ModelUse, PoolState, Residency
from greenroom.schemas.events.events import Failed
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import ModelType
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.models.model_description import MemoryNeed, memory_need
from greenroom.schemas.protocols.model_protocol import LoadProgress
from greenroom.schemas.protocols.pool_protocol import LoadPlan, ModelNews, WatchModels
from greenroom.schemas.settings.settings import Settings

A, B, C = map(ModelKey, "abc")
NOW = 1000.0


def ready(key: ModelKey, need: int, **more: int) -> ModelUse:
    return ModelUse(key, Residency.GRANTED, ModelState.READY, need=need, **more)  # type: ignore[arg-type]


def planned(state: PoolState, key: ModelKey, needed: int | None = None) -> LoadPlan:
    need = None if needed is None else MemoryNeed(needed, needed, needed)
    return plan_load(state, key, need, MemoryRead(None, NOW))[0]


def test_a_plan_is_the_decision_on_one_more_request_and_changes_nothing() -> None:
    state = PoolState({A: ready(A, 6), B: ready(B, 3)}, NOW, 10)
    before = dict(state.models)
    assert planned(state, A).outcome == "ready"
    assert planned(state, C, 1).outcome == "loads"
    assert (planned(state, C, 4).outcome, planned(state, C, 4).unload) == ("evicts", (B,))
    assert {*planned(state, C, 9).unload} == {A, B}
    assert planned(state, C, 11).outcome == "refused"
    assert state.models == before


@pytest.mark.parametrize(("kind", "outcome"), [("text", "evicts"), ("vision", "refused")])
def test_a_plan_loads_a_text_model_above_the_limit_alone_and_none_with_vision(
    kind: ModelType, outcome: str
) -> None:
    state = PoolState({A: ready(A, 6), B: ready(B, 3)}, NOW, 10)
    need = memory_need(kind, 12, 12, limit=10, most=14)
    found = plan_load(state, C, need, MemoryRead(None, NOW))[0]
    assert (found.outcome, {*found.unload}) == (outcome, {A, B} if outcome == "evicts" else set())
    assert (found.required, found.limit) == (12, 10)


def test_a_plan_waits_for_models_in_use() -> None:
    state = PoolState({A: ready(A, 6, leases=1)}, NOW, 10)
    found = planned(state, B, 8)
    assert (found.outcome, found.unload, found.pause, found.required, found.limit) == (
        "waits",
        (),
        (A,),
        8,
        10,
    )


async def test_a_reader_of_news_that_reads_nothing_is_shut_out() -> None:
    ledger = Ledger(Settings())
    overview = PoolOverview(ledger, MemoryReading(lambda: None, lambda: 0))
    with ReplyStream[ModelNews | Failed]() as slow:
        overview.answer(WatchModels(), slow.sender)
        for step in range(MOST_UNREAD + 10):
            ledger.apply(Reported(A, LoadProgress(step / 2_000), NOW))
        assert slow.sender.ended
        assert slow.sender.unread == MOST_UNREAD + 1
        *_, last = [slow.receive_nowait() for _ in range(slow.sender.unread)]
    assert isinstance(last, Failed)
    assert last.problem.code == "too_slow"

"""News of models for operators, from the events of the pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from greenroom.actors.pool.planning.pool_events import Decided, PoolEvent, Reported
from greenroom.actors.pool.planning.pool_state import ModelUse
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.model_protocol import (
    Crashed,
    HungWorkerReturned,
    LoadFailed,
    LoadProgress,
    LoadRefused,
    ModelReport,
    StateChanged,
    Unloaded,
    WorkerHung,
)
from greenroom.schemas.protocols.operator_protocol import ModelNews, NewsKind


def news_of(event: PoolEvent) -> Iterator[ModelNews]:
    """Yield the news in an event of the pool."""
    match event:
        case Reported(key, report):
            yield from _news_of_report(key, report)
        case Decided(plan):
            for key, cause in zip(plan.unload, plan.beneficiaries, strict=True):
                yield ModelNews(key, "eviction", "unloading", cause=cause)


def present_news(models: Iterable[ModelUse]) -> Iterator[ModelNews]:
    """Yield the present stage of each model, with which a reader begins."""
    for model in models:
        kind: NewsKind = "unload" if model.state in (ModelState.IDLE, ModelState.UNLOADING) else "load"
        stage = "failed" if model.state is ModelState.ERROR else model.state.value
        yield ModelNews(model.key, kind, stage, 1.0 if model.ready else None, since=model.changed or None)


def _news_of_report(key: ModelKey, report: ModelReport) -> Iterator[ModelNews]:
    match report:
        case StateChanged(ModelState.UNLOADING):
            yield ModelNews(key, "unload", "unloading")
        case StateChanged(state):
            fraction = {ModelState.LOADING: 0.0, ModelState.READY: 1.0}.get(state)
            yield ModelNews(key, "load", state.value, fraction)
        case LoadProgress(fraction):
            yield ModelNews(key, "load", "loading", round(fraction, 4))
        case LoadRefused(problem):
            yield ModelNews(key, "load", "waiting", detail=problem.detail)
        case LoadFailed(problem):
            yield ModelNews(key, "load", "failed", detail=problem.detail)
        case Unloaded(freed):
            yield ModelNews(key, "unload", "idle", nbytes=freed)
        case Crashed(problem):
            yield ModelNews(key, "crash", "crashed", detail=problem.detail)
        case WorkerHung(problem):
            yield ModelNews(key, "crash", "hung", detail=problem.detail)
        case HungWorkerReturned():
            yield ModelNews(key, "crash", "returned")

"""Probe of a model that was pulled, at once or after its first load, where nobody has to give way to it."""

from __future__ import annotations

import trio

from greenroom.actors.core.ask_actor import answer_or_failed, ask_actor
from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.engine.catalog.hub.probe_mark import mark_for_probe, unmark
from greenroom.schemas.events.events import Failed
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import ProblemError, draining
from greenroom.schemas.protocols.operator_protocol import LoadPlan, ModelNews, PlanLoad, WatchModels
from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions, PoolMessage
from greenroom.schemas.protocols.probe_protocol import Probed, ProbeModel

log = get_logger(actor="downloads")


def want_probe(name: str, *, wanted: bool) -> None:
    """Let a server probe a model after its first load, or not.

    Args:
        name: `OWNER/NAME` or `OWNER/NAME@REVISION`.
    """
    (mark_for_probe if wanted else unmark)(name.partition("@")[0])


async def probe_pulled(model: str, pool: Ref[PoolMessage]) -> None:
    """Probe a model, unless it was probed before, or that would unload another one.

    Then its first load is followed by the probe, in this process or a later one.
    """
    await trio.to_thread.run_sync(mark_for_probe, model)
    try:
        [known] = (await ask_actor(pool, DescribeModel(model), ModelDescriptions)).models
        if known.record is None or known.need is None:
            return
        plan = await ask_actor(pool, PlanLoad(ModelKey(model), known.need), LoadPlan)
    except ProblemError as error:
        log.info("model not probed", model=model, reason=error.problem.detail)
        return
    if plan.outcome not in ("loads", "loading", "ready"):
        log.info("model not probed yet", model=model, reason="it does not fit beside the loaded models")
        return
    await _probe_marked(model, pool)


async def probe_after_first_loads(pool: Ref[PoolMessage]) -> None:
    """Probe the models that were pulled for it as soon as a request has loaded them; ends with the pool."""
    async with trio.open_nursery() as nursery:
        while True:
            try:
                news = await pool.stream(WatchModels())
            except ActorStopped:
                return
            with news:
                async for each in news:
                    match each:
                        case ModelNews(key, "load", "ready"):
                            nursery.start_soon(_probe_marked, key.model, pool)
                        case Failed(problem) if problem == draining():
                            return


async def _probe_marked(model: str, pool: Ref[PoolMessage]) -> None:
    """Probe a model if it has a mark, and was not probed since.

    The mark goes before the probe: a model that ends the process does not do so again and again.
    """
    if not await trio.to_thread.run_sync(unmark, model):
        return
    ended = False
    try:
        ended = await _probe(model, pool)
    finally:
        if not ended:
            mark_for_probe(model)


async def _probe(model: str, pool: Ref[PoolMessage]) -> bool:
    """Probe a model, and return whether the server had the time for it."""
    try:
        [known] = (await ask_actor(pool, DescribeModel(model), ModelDescriptions)).models
        if known.record is not None and known.record.probed is not None:
            return True
    except ProblemError:
        return True
    probed = await answer_or_failed(pool, ProbeModel(model), Probed)
    if isinstance(probed, Failed):
        log.info("model not probed", model=model, reason=probed.problem.detail)
        return probed.problem != draining()
    return True

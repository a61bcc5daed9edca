"""Probe of a model that was pulled, where nobody has to give way to it."""

from __future__ import annotations

import trio

from greenroom.actors.core.ask_actor import answer_or_failed, ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.actors.engines.engines import Engines
from greenroom.schemas.events.events import Failed
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.pool_protocol import (
    DescribeModel,
    DescribePool,
    ModelDescriptions,
    PoolMessage,
    PoolStatus,
)
from greenroom.schemas.protocols.probe_protocol import Probed, ProbeModel

log = get_logger(actor="downloads")


async def probe_if_it_fits(model: str, pool: Ref[PoolMessage], engines: Engines) -> None:
    """Probe a model, unless that would unload another one, or it was probed before.

    Without a probe, its first load says so in the log, with the command that probes it.
    """
    try:
        status = await ask_actor(pool, DescribePool(), PoolStatus)
        [known] = (await ask_actor(pool, DescribeModel(model), ModelDescriptions)).models
    except ProblemError as error:
        log.info("model not probed", model=model, reason=error.problem.detail)
        return
    if known.record is None or known.record.probed is not None or known.needed is None:
        return
    used = sum(each.nbytes for each in status.models)
    room = await trio.to_thread.run_sync(engines.room, abandon_on_cancel=True)
    loaded = sum(each.nbytes > 0 for each in status.models)
    if used + known.needed > room or not engines.has_place(loaded):
        log.info("model not probed", model=model, reason="it does not fit beside the loaded models")
        return
    probed = await answer_or_failed(pool, ProbeModel(model), Probed)
    if isinstance(probed, Failed):
        log.info("model not probed", model=model, reason=probed.problem.detail)

"""Probe of a model that was pulled, where nobody has to give way to it."""

from __future__ import annotations

from greenroom.actors.core.ask_actor import answer_or_failed, ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.schemas.events.events import Failed
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.operator_protocol import LoadPlan, PlanLoad
from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions, PoolMessage
from greenroom.schemas.protocols.probe_protocol import Probed, ProbeModel

log = get_logger(actor="downloads")


async def probe_if_it_fits(model: str, pool: Ref[PoolMessage]) -> None:
    """Probe a model, unless that would unload another one, or it was probed before.

    Without a probe, its first load says so in the log, with the command that probes it.
    """
    try:
        [known] = (await ask_actor(pool, DescribeModel(model), ModelDescriptions)).models
        if known.record is None or known.record.probed is not None or known.need is None:
            return
        plan = await ask_actor(pool, PlanLoad(ModelKey(model), known.need), LoadPlan)
    except ProblemError as error:
        log.info("model not probed", model=model, reason=error.problem.detail)
        return
    if plan.outcome not in ("loads", "loading", "ready"):
        log.info("model not probed", model=model, reason="it does not fit beside the loaded models")
        return
    probed = await answer_or_failed(pool, ProbeModel(model), Probed)
    if isinstance(probed, Failed):
        log.info("model not probed", model=model, reason=probed.problem.detail)

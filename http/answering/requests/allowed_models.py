"""The models that the caller of a request may use; to it, the others do not exist."""

from __future__ import annotations

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.http.answering.requests.current_request import caller
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.problems import ProblemError, model_not_found
from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions, PoolMessage
from greenroom.schemas.settings.caller import is_allowed


async def describe_models(pool: Ref[PoolMessage], name: str | None = None) -> tuple[ModelDescription, ...]:
    """Return the description of a model; without a name, those of all that the caller may use.

    Raises:
        ProblemError: 404 for a model that does not exist or may not be used.
    """
    patterns = caller().models
    try:
        found = (await ask_actor(pool, DescribeModel(name), ModelDescriptions)).models
    except ProblemError as error:
        if patterns and name is not None and error.problem.status == 404:
            raise ProblemError(model_not_found(name)) from None  # the problem names models like it
        raise
    allowed = tuple(each for each in found if is_allowed(patterns, each.model or each.id))
    if name is not None and not allowed:
        raise ProblemError(model_not_found(name))
    return allowed

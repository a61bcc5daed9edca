"""Complete responses of models that do not generate text, such as embeddings."""

from __future__ import annotations

from typing import Generic, TypeVar

import attrs
import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.requests.generation import Generation
from greenroom.http.answering.audit.audited_request import audited_request
from greenroom.http.answering.requests.current_request import for_caller, request_resources
from greenroom.schemas.events.events import Failed, Finished
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import ProblemError, internal_error
from greenroom.schemas.protocols.pool_protocol import PoolMessage

E = TypeVar("E")


@attrs.frozen
class Results(Generic[E]):
    """Result events of one request.

    Args:
        model: Canonical name of the model.
        events: Results in the order in which the model made them.
    """

    model: str
    events: tuple[E, ...]
    finished: Finished


async def collect_results(pool: Ref[PoolMessage], request: InferenceRequest, *kinds: type[E]) -> Results[E]:
    """Run a request, and return its events of the given types; it is cancelled when the HTTP request ends.

    Raises:
        ProblemError: The request was refused, or failed.
    """
    if (audited := audited_request()) is not None:
        audited.model = request.key.model
    generation = request_resources().enter_context(Generation(pool, for_caller(request), limited=True))
    found: list[E] = []
    while True:
        try:
            ready = [await generation.receive(), *generation.receive_ready()]
        except trio.EndOfChannel:
            raise ProblemError(internal_error()) from None
        for event in ready:
            if isinstance(event, Failed):
                raise ProblemError(event.problem)
            if isinstance(event, Finished):
                return Results(generation.key.model, tuple(found), event)
            if isinstance(event, kinds):
                found.append(event)

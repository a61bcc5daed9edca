"""How long a request's prompt is, which needs neither weights nor a slot."""

from __future__ import annotations

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.pool.lease import Found
from greenroom.schemas.events import Failed
from greenroom.schemas.model_protocol import Prepare, Prepared
from greenroom.schemas.pool_protocol import Consult, PoolMessage
from greenroom.schemas.problems import Problem, draining, model_crashed
from greenroom.schemas.requests import InferenceRequest


async def count_prompt_tokens(pool: Ref[PoolMessage], request: InferenceRequest) -> int | Problem:
    """Return the tokens of a request's prompt, as its usage would have them, or why it is refused."""
    replies: ReplyStream[Found | Prepared | Failed] = ReplyStream()
    with replies:
        try:
            await pool.stream(Consult(request.key, request.id), replies)
        except ActorStopped:
            return draining()
        found = await replies.receive()
        if not isinstance(found, Found):
            return _problem(found)
        try:
            await found.model.stream(Prepare(request), replies)
        except ActorStopped:
            return model_crashed(found.key.model)
        prepared = await replies.receive()
        return prepared.prompt_tokens if isinstance(prepared, Prepared) else _problem(prepared)


def _problem(event: object) -> Problem:
    assert isinstance(event, Failed)
    return event.problem

"""What a model can tell of a prompt, which needs neither weights nor a slot."""

from __future__ import annotations

from typing import TypeVar

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.pool.lease import Found
from greenroom.schemas.events import Failed
from greenroom.schemas.model_protocol import Inspect, Prepare, Prepared, PromptContents
from greenroom.schemas.pool_protocol import Consult, PoolMessage
from greenroom.schemas.problems import Problem, draining, model_crashed
from greenroom.schemas.requests import InferenceRequest

A = TypeVar("A", Prepared, PromptContents)


async def count_prompt_tokens(pool: Ref[PoolMessage], request: InferenceRequest) -> int | Problem:
    """Return the tokens of a request's prompt, as its usage would have them, or why it is refused."""
    prepared = await _consult(pool, Prepare(request), Prepared)
    return prepared if isinstance(prepared, Problem) else prepared.prompt_tokens


async def inspect_prompt(pool: Ref[PoolMessage], request: InferenceRequest) -> PromptContents | Problem:
    """Return a request's prompt as the model reads it, or why it is refused."""
    return await _consult(pool, Inspect(request), PromptContents)


async def _consult(pool: Ref[PoolMessage], question: Prepare | Inspect, kind: type[A]) -> A | Problem:
    replies: ReplyStream[Found | A | Failed] = ReplyStream()
    request = question.request
    with replies:
        try:
            await pool.stream(Consult(request.key, request.id), replies)
        except ActorStopped:
            return draining()
        found = await replies.receive()
        if not isinstance(found, Found):
            return _problem(found)
        try:
            await found.model.stream(question, replies)
        except ActorStopped:
            return model_crashed(found.key.model)
        answer = await replies.receive()
        return answer if isinstance(answer, kind) else _problem(answer)


def _problem(event: object) -> Problem:
    assert isinstance(event, Failed)
    return event.problem

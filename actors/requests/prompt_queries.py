"""Requests to a model that need neither weights nor a slot: token counts and rendered prompts."""

from __future__ import annotations

from typing import TypeVar

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.pool.lease import Found
from greenroom.schemas.events.events import Failed
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import ProblemError, draining, model_crashed
from greenroom.schemas.protocols.model_protocol import Prepare, Prepared, PromptContents, RenderPrompt
from greenroom.schemas.protocols.pool_protocol import PoolMessage, QueryPrompt

A = TypeVar("A", Prepared, PromptContents)


async def count_prompt_tokens(pool: Ref[PoolMessage], request: InferenceRequest) -> int:
    """Return the number of prompt tokens, as the request's usage would report it.

    Raises:
        ProblemError: The request is refused.
    """
    return (await _query(pool, Prepare(request), Prepared)).prompt_tokens


async def render_prompt(pool: Ref[PoolMessage], request: InferenceRequest) -> PromptContents:
    """Return the text and the tokens of a request's prompt.

    Raises:
        ProblemError: The request is refused, or its model cannot show prompts.
    """
    return await _query(pool, RenderPrompt(request), PromptContents)


async def _query(pool: Ref[PoolMessage], question: Prepare | RenderPrompt, kind: type[A]) -> A:
    replies: ReplyStream[Found | A | Failed] = ReplyStream()
    request = question.request
    with replies:
        try:
            await pool.stream(QueryPrompt(request.key, request.id, request.adapter), replies)
        except ActorStopped:
            raise ProblemError(draining()) from None
        found = await replies.receive()
        if not isinstance(found, Found):
            raise _refusal(found)
        try:
            await found.model.stream(question, replies)
        except ActorStopped:
            raise ProblemError(model_crashed(found.key.model)) from None
        answer = await replies.receive()
        if not isinstance(answer, kind):
            raise _refusal(answer)
        return answer


def _refusal(event: object) -> ProblemError:
    assert isinstance(event, Failed)
    return ProblemError(event.problem)

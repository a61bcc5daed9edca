"""Requests to a model that need neither weights nor a slot: token counts and rendered prompts."""

from __future__ import annotations

from typing import TypeVar

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.pool.lease import Found, NameFound
from greenroom.actors.requests.default_list import DefaultList
from greenroom.schemas.events.events import Admitted, Failed
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import ProblemError, draining, model_crashed
from greenroom.schemas.protocols.model_protocol import Prepare, PromptContents, RenderPrompt
from greenroom.schemas.protocols.pool_protocol import PoolMessage, QueryPrompt

A = TypeVar("A", Admitted, PromptContents)


async def count_prompt_tokens(pool: Ref[PoolMessage], request: InferenceRequest) -> int:
    """Return the number of prompt tokens, as the request's usage would report it.

    Raises:
        ProblemError: The request is refused.
    """
    return (await _query(pool, Prepare(request), Admitted)).prompt_tokens


async def render_prompt(pool: Ref[PoolMessage], request: InferenceRequest) -> PromptContents:
    """Return the text and the tokens of a request's prompt.

    Raises:
        ProblemError: The request is refused, or its model cannot show prompts.
    """
    return await _query(pool, RenderPrompt(request), PromptContents)


async def _query(pool: Ref[PoolMessage], question: Prepare | RenderPrompt, kind: type[A]) -> A:
    models = DefaultList()
    while True:
        answer = await _ask_one(pool, question, kind, models)
        if not isinstance(answer, Failed):
            return answer
        if not models.pass_over(answer.problem):
            raise ProblemError(answer.problem)


async def _ask_one(
    pool: Ref[PoolMessage], question: Prepare | RenderPrompt, kind: type[A], models: DefaultList
) -> A | Failed:
    """Return the answer of the model that the request's name means, without those tried before."""
    replies: ReplyStream[NameFound | Found | A | Failed] = ReplyStream()
    request = question.request
    caller = request.allowed, request.client, request.may_download
    query = QueryPrompt(request.key, request.id, request.adapter, models.tried, *caller)
    with replies:
        try:
            await pool.stream(query, replies)
        except ActorStopped:
            return Failed(draining())
        async for event in replies:
            match event:
                case NameFound():
                    models.begin(event)
                case Found(key, model):
                    try:
                        await model.stream(question, replies)
                    except ActorStopped:
                        return Failed(model_crashed(key.model))
                case answer:
                    assert isinstance(answer, kind | Failed)
                    return answer
    return Failed(draining())

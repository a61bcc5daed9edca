"""Requests to a model that need no slot: token counts, rendered prompts, and changed settings."""

from __future__ import annotations

import contextlib
from typing import TypeVar

import trio

from greenroom.actors.core.ref import ActorStopped, Ref, ask_actor
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.engines.engines import Engines
from greenroom.actors.pool.lease_queue import Found, NameFound
from greenroom.actors.requests.generation import DefaultList
from greenroom.schemas.events.events import Admitted, Failed
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import ProblemError, draining, model_crashed
from greenroom.schemas.protocols.model_protocol import Prepare, PromptContents, RenderPrompt
from greenroom.schemas.protocols.pool_protocol import (
    DescribePool,
    PoolMessage,
    PoolStatus,
    QueryPrompt,
    Unloading,
    UnloadModel,
)
from greenroom.schemas.settings.settings import Settings, opens_otherwise

A = TypeVar("A", Admitted, PromptContents)


async def count_prompt_tokens(pool: Ref[PoolMessage], request: InferenceRequest) -> int:
    """Return the number of prompt tokens, as the request's usage would report it. Raises ProblemError: the
    request is refused.
    """
    return (await _query(pool, Prepare(request), Admitted)).prompt_tokens


async def render_prompt(pool: Ref[PoolMessage], request: InferenceRequest) -> PromptContents:
    """Return the text and the tokens of a request's prompt. Raises ProblemError: the request is refused, or
    its model cannot show prompts.
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


async def reload_models(pool: Ref[PoolMessage], engines: Engines, settings: Settings) -> tuple[str, ...]:
    """Use changed settings of models, names and profiles from now on.

    Running requests end as they began. A model in memory whose own settings have changed leaves it once its
    leases have ended, and is opened anew for the next request after that. One that requests wait for is
    opened anew at once.

    Returns:
        Names of the models that are opened anew.
    """
    before = engines.names.settings
    await trio.to_thread.run_sync(engines.reload, settings)
    status = await ask_actor(pool, DescribePool(), PoolStatus)
    reopened: list[str] = []
    for model in status.models:
        if opens_otherwise(before, settings, model.key.model):
            with contextlib.suppress(ProblemError):  # it hangs, and answers nothing anyway
                await ask_actor(pool, UnloadModel(model.key, reopens=True, reason="reload"), Unloading)
                if model.nbytes or model.waiting:
                    reopened.append(str(model.key))
    return tuple(reopened)

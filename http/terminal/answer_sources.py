"""Sources of a conversation's responses: a system in this process, or a server."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import httpx2

from greenroom.actors.core.ref import Ref
from greenroom.actors.requests.generation import Generation
from greenroom.http.terminal.shown_files import chat_content
from greenroom.schemas.events.events import (
    Failed,
    Finished,
    InferenceEvent,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import Message
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.pool_protocol import PoolMessage

TemplateOptions = Mapping[str, Any]


class AnswerSource(Protocol):
    """A source of responses to a conversation."""

    def __call__(
        self, messages: tuple[Message, ...]
    ) -> AbstractAsyncContextManager[AsyncIterable[InferenceEvent]]:
        """Return the events of a response up to Finished or Failed; leaving the context cancels it."""


def local_answers(pool: Ref[PoolMessage], options: TemplateOptions) -> AnswerSource:
    """Return a source that runs the system's first model."""

    @asynccontextmanager
    async def answer(messages: tuple[Message, ...]) -> AsyncIterator[AsyncIterable[InferenceEvent]]:
        request = InferenceRequest(
            id=uuid.uuid4().hex,
            key=ModelKey("default"),
            input=ChatInput(messages, template_options=options),
        )
        with Generation(pool, request) as generation:
            yield generation

    return answer


@asynccontextmanager
async def open_server(
    url: str, model: str | None, overrides: Overrides, options: TemplateOptions
) -> AsyncIterator[AnswerSource]:
    """Open an OpenAI-compatible server as a source; it receives `OPENAI_API_KEY` if that is set.

    Args:
        url: Base URL, with or without `/v1`.
    """
    headers = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}
    path = url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
    async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=600)) as client:

        @asynccontextmanager
        async def answer(messages: tuple[Message, ...]) -> AsyncIterator[AsyncIterable[InferenceEvent]]:
            body = {
                "model": model or "default",
                "messages": [
                    {"role": message.role, "content": chat_content(message)} for message in messages
                ],
                "stream": True,
                "stream_options": {"include_usage": True},
                **overrides,
                **({"chat_template_kwargs": dict(options)} if options else {}),
            }
            try:
                response = await client.send(client.build_request("POST", path, json=body), stream=True)
            except (httpx2.HTTPError, httpx2.InvalidURL) as problem:
                yield _single_event(_unreachable(url, problem))
                return
            try:
                yield _events(response, url)
            finally:
                await response.aclose()

        yield answer


async def _events(response: httpx2.Response, url: str) -> AsyncIterator[InferenceEvent]:
    usage = Usage(0, 0)
    failure: Failed | None = None
    try:
        if response.status_code != 200:
            yield Failed(_problem(response.status_code, await response.aread()))
            return
        async for line in response.aiter_lines():
            # Keep reading after a failure: httpx2 leaves generators open if iteration stops early.
            if failure is not None or not line.startswith("data:") or line.endswith("[DONE]"):
                continue
            try:
                chunk = json.loads(line[5:])
            except ValueError as problem:
                failure = _unreachable(url, problem)
                continue
            if "error" in chunk:
                failure = Failed(_problem(500, line[5:].encode()))
                continue
            if chunk.get("usage"):
                usage = Usage(chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"])
            for choice in chunk.get("choices", ()):
                for event in _deltas(choice.get("delta", {})):
                    yield event
        yield failure or Finished("stop", usage)
    except httpx2.HTTPError as problem:
        yield failure or _unreachable(url, problem)


def _deltas(delta: Mapping[str, Any]) -> Iterator[InferenceEvent]:
    if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
        yield ReasoningDelta(reasoning)
    if text := delta.get("content"):
        yield TextDelta(text)


async def _single_event(event: InferenceEvent) -> AsyncIterator[InferenceEvent]:
    yield event


def _unreachable(url: str, problem: Exception) -> Failed:
    return Failed(Problem(503, "unreachable", f"{url}: {problem or type(problem).__name__}"))


def _problem(status: int, body: bytes) -> Problem:
    try:
        detail = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        detail = body.decode("utf-8", "replace")[:500] or f"HTTP status {status}"
    return Problem(status, "refused", str(detail))

"""A conversation's responses, as a server gives them."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx2

from greenroom.http.media.media_reader import MAX_FILE_BYTES
from greenroom.http.terminal.chosen_server import ChosenServer, refusal, socket_path
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from greenroom.schemas.file_formats import image_format, is_pdf
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import ContentPart, DocumentPart, ImagePart, Message, TextPart

TemplateOptions = Mapping[str, Any]

WHOLE_CONTEXT = 2**31 - 1
"""Limit on an answer that leaves only that of the context, to which every limit is clamped."""


class AnswerSource(Protocol):
    def __call__(
        self, messages: tuple[Message, ...]
    ) -> AbstractAsyncContextManager[AsyncIterable[InferenceEvent]]:
        """Return the events of a response up to Finished or Failed; leaving the context cancels it."""


def _whole_context(messages: Iterable[Message]) -> Overrides:
    """Return the limit of an answer to text; answers about images end sooner, as everywhere."""
    return {} if any(message.media for message in messages) else {"max_tokens": WHOLE_CONTEXT}


@asynccontextmanager
async def open_server(
    server: ChosenServer, overrides: Overrides, options: TemplateOptions
) -> AsyncIterator[AnswerSource]:
    """Open an OpenAI-compatible server as a source."""
    path = f"{server.base}/v1/chat/completions"
    async with open_client(server) as client:

        @asynccontextmanager
        async def answer(messages: tuple[Message, ...]) -> AsyncIterator[AsyncIterable[InferenceEvent]]:
            ours = server.drops_oldest
            fills = ours and not server.sets_length
            body = {
                "model": server.model,
                "messages": [
                    {"role": message.role, "content": chat_content(message)} for message in messages
                ],
                "stream": True,
                "stream_options": {"include_usage": True, **({"include_status": True} if ours else {})},
                **(_whole_context(messages) if fills else {}),
                **overrides,
                **({"truncation": "auto"} if ours else {}),
                **({"chat_template_kwargs": dict(options)} if options else {}),
            }
            try:
                response = await client.send(client.build_request("POST", path, json=body), stream=True)
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                yield _single_event(Failed(server.gone(error)))
                return
            try:
                yield _events(response, server)
            finally:
                await response.aclose()

        yield answer


def open_client(server: ChosenServer) -> httpx2.AsyncClient:
    """Return a client of the server; what it computes may take ten minutes to begin."""
    timeout = httpx2.Timeout(30, read=600)
    path = socket_path(server.url)
    return httpx2.AsyncClient(
        headers=server.headers,
        timeout=timeout,
        trust_env=server.trusts_environment,
        verify=server.verifies,
        transport=None if path is None else httpx2.AsyncHTTPTransport(uds=path),
    )


async def server_events(
    response: httpx2.Response, server: ChosenServer
) -> AsyncGenerator[Mapping[str, Any] | Failed]:
    """Yield the documents of a stream of server-sent events; the last is Failed if it goes wrong."""
    failure: Failed | None = None
    try:
        if response.status_code != 200:
            yield Failed(refusal(response.status_code, await response.aread()))
            return
        rest = b""
        # Not by lines: httpx2 ends them at the line separators of Unicode too, which JSON may hold.
        async for piece in response.aiter_bytes():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                # Keep reading after a failure: httpx2 leaves generators open if iteration stops early.
                document = None if failure is not None else _document(line.rstrip(b"\r"), server)
                if isinstance(document, Failed):
                    failure = document
                elif document is not None:
                    yield document
        if failure is not None:
            yield failure
    except httpx2.HTTPError as error:
        yield failure or Failed(server.gone(error))


def _document(line: bytes, server: ChosenServer) -> Mapping[str, Any] | Failed | None:
    """Return the document in a line of a stream; None if it has none."""
    if not line.startswith(b"data:") or line.endswith(b"[DONE]"):
        return None
    try:
        document: dict[str, Any] = json.loads(line[5:].decode(errors="replace"))
        failed = document.get("error") or document.get("type") == "error"
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return Failed(server.gone(error))
    return Failed(refusal(500, line[5:])) if failed else document


async def _events(response: httpx2.Response, server: ChosenServer) -> AsyncIterator[InferenceEvent]:
    usage, failed = Usage(0, 0), False
    async for chunk in server_events(response, server):
        if isinstance(chunk, Failed):
            failed = True
            yield chunk
            continue
        if chunk.get("usage"):
            usage = Usage(chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"])
        if waits := chunk.get("queue_status"):
            yield QueueStatus(waits["status"], 0, waits["model"])
        if dropped := chunk.get("dropped_messages"):
            yield Admitted(usage.prompt, dropped_messages=dropped)
        for choice in chunk.get("choices") or ():  # some servers send null for nothing
            for event in _deltas(choice.get("delta") or {}):
                yield event
    if not failed:
        yield Finished("stop", usage)


def _deltas(delta: Mapping[str, Any]) -> Iterator[InferenceEvent]:
    if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
        yield ReasoningDelta(reasoning)
    if text := delta.get("content"):
        yield TextDelta(text)


async def _single_event(event: InferenceEvent) -> AsyncIterator[InferenceEvent]:
    yield event


class CannotShowError(Exception):
    """A file that cannot be attached; the message is one line with the reason."""


def read_shown_file(path: str) -> ImagePart | DocumentPart:
    """Return a file as a content part. Raises CannotShowError: it cannot be read, is too large, or is neither
    an image nor a PDF.
    """
    try:
        file = Path(path).expanduser()
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise CannotShowError(f"{path} is not a regular file")
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except (OSError, RuntimeError, ValueError) as problem:  # unknown home folder; null byte
        reason = problem.strerror if isinstance(problem, OSError) else None
        raise CannotShowError(f"{path}: {reason or problem}") from problem
    if len(data) > MAX_FILE_BYTES:
        raise CannotShowError(f"{path} has more than the {MAX_FILE_BYTES:,} bytes that a file may have")
    if is_pdf(data):
        return DocumentPart(data, name=os.fsencode(file.name).decode(errors="replace"), param=path)
    if image_format(data) is None:
        raise CannotShowError(f"{path} is neither a JPEG, PNG, GIF, WebP or HEIC image nor a PDF")
    return ImagePart(data, param=path)


def chat_content(message: Message) -> str | list[dict[str, Any]]:
    """Return a message's content in OpenAI's format."""
    if not message.media:
        return message.text
    return [_chat_part(part) for part in message.content]


def _chat_part(part: ContentPart) -> dict[str, Any]:
    match part:
        case ImagePart(data):
            url = f"data:image/{image_format(data)};base64,{base64.b64encode(data).decode()}"
            return {"type": "image_url", "image_url": {"url": url}}
        case DocumentPart(data, name=name):
            url = f"data:application/pdf;base64,{base64.b64encode(data).decode()}"
            return {"type": "file", "file": {"file_data": url, "filename": name}}
        case TextPart(text):
            return {"type": "text", "text": text}
    raise TypeError(part)

"""A load generator for OpenAI-compatible servers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import attrs
import h11
import httpx2

from greenroom.tests.bench.response_recorder import RecordedResponse, ResponseRecorder

ChatMessages = Sequence[Mapping[str, Any]]


class BenchError(Exception):
    """A measurement that is impossible; the message is one sentence."""


@attrs.frozen
class Endpoint:
    """Target and common fields of all requests.

    Args:
        base: Base URL without `/v1`.
        model: Model id of every request.
        api_key: Bearer token.
        extra: Additional fields of every request.
    """

    base: str
    model: str
    api_key: str = "none"
    extra: Mapping[str, Any] = attrs.field(factory=dict)


async def find_endpoint(url: str, model: str | None, api_key: str, extra: Mapping[str, Any]) -> Endpoint:
    """Return the endpoint at `url`; without a `model`, use the first one that the server lists.

    Raises:
        BenchError: No server answers there, or it lists no model.
    """
    base = url.rstrip("/").removesuffix("/v1")
    if model is None:
        try:
            async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {api_key}"}) as client:
                listed = (await client.get(f"{base}/v1/models")).raise_for_status().json()["data"]
            model = str(listed[0]["id"])
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, IndexError, TypeError) as problem:
            raise BenchError(f"{base}/v1/models: {problem or type(problem).__name__}") from problem
    return Endpoint(base, model, api_key, extra)


class LoadClient:
    """Sends chat requests to one server, greedy by default so that a bare loop can repeat the response."""

    def __init__(self, target: Endpoint, recorder: ResponseRecorder) -> None:
        self.endpoint = target
        self._recorder = recorder
        self._url = urlsplit(target.base)

    async def ask(self, messages: ChatMessages, max_tokens: int, **fields: Any) -> RecordedResponse:
        """Return a complete response, unparsed: parsing would take time from concurrent measurements."""
        async with self.stream(messages, max_tokens, **fields) as response:
            await response.done.wait()
        return response

    @asynccontextmanager
    async def stream(
        self, messages: ChatMessages, max_tokens: int, **fields: Any
    ) -> AsyncIterator[RecordedResponse]:
        """Send a request, and yield its response while it arrives; leaving the context disconnects.

        Raises:
            BenchError: No server listens there.
        """
        body = {
            "model": self.endpoint.model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.endpoint.extra,
            **fields,
        }
        async with AsyncExitStack() as stack:
            try:
                request = self._request(json.dumps(body).encode())
                response = await stack.enter_async_context(self._recorder.open(self._url, request))
            except OSError as problem:
                raise BenchError(f"{self.endpoint.base}: {problem}") from problem
            yield response

    def _request(self, body: bytes) -> bytes:
        headers = [
            ("Host", self._url.netloc),
            ("Authorization", f"Bearer {self.endpoint.api_key}"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        connection = h11.Connection(h11.CLIENT)
        request = h11.Request(method="POST", target=f"{self._url.path}/v1/chat/completions", headers=headers)
        return (connection.send(request) or b"") + (connection.send(h11.Data(data=body)) or b"")

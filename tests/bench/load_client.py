"""A load generator for OpenAI-compatible servers: prompts, requests and recorded responses.

Client and server share the measured machine, so the client's processor time is missing for the server. One
task waits for all sockets, records times and bytes, and leaves parsing for later: 10 µs per token at 16
streams here, against 24 µs for a Trio task per socket and about 200 µs for httpx.
"""

from __future__ import annotations

import json
import random
import selectors
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

import attrs
import h11
import httpx2
import trio

READ_SIZE = 64 * 1024


@attrs.define(eq=False)
class RecordedResponse:
    """The bytes of one response with their arrival times.

    Args:
        sent: Time of `time.perf_counter()` just before the request was written.
        chunks: Times and bytes of all reads.
        error: Reason for a premature end of the connection.
        events: Number of server-sent events so far.
        disconnected: True if the client left before the end.
    """

    sent: float
    chunks: list[tuple[float, bytes]] = attrs.Factory(list)
    error: str | None = None
    done: trio.Event = attrs.Factory(trio.Event)
    events: int = 0
    disconnected: bool = False
    _parser: h11.Connection | None = None
    _awaited_events: int = 0
    _events_reached: trio.Event = attrs.Factory(trio.Event)

    async def wait_for_events(self, events: int) -> None:
        """Wait until that many events have arrived, or the response is complete."""
        self._awaited_events, self._events_reached = events, trio.Event()
        if self.events < events and not self.done.is_set():
            await self._events_reached.wait()

    def finish(self) -> None:
        """Mark the response as complete, and wake up waiters."""
        self.done.set()
        self._events_reached.set()

    def add(self, now: float, data: bytes) -> bool:
        """Record received bytes; return whether the response is complete."""
        first = not self.chunks
        self.chunks.append((now, data))
        self.events += data.count(b"data:")
        if self.events >= self._awaited_events:
            self._events_reached.set()
        if first and b"chunked" not in data[:READ_SIZE].partition(b"\r\n\r\n")[0].lower():
            self._parser = h11.Connection(h11.CLIENT)
            self._parser.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
        if self._parser is None:
            return data.endswith(b"0\r\n\r\n")
        self._parser.receive_data(data)
        while (event := self._parser.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.EndOfMessage):
                return True
        return False


class ResponseRecorder:
    """Sends requests and records their responses; create it with `open_response_recorder`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._added = trio.Event()

    @asynccontextmanager
    async def open(self, url: SplitResult, request: bytes) -> AsyncIterator[RecordedResponse]:
        """Send raw bytes on a new connection; leaving the context early disconnects."""
        with await trio.to_thread.run_sync(_connect, url) as connection:
            response = RecordedResponse(sent=time.perf_counter())
            connection.sendall(request)
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, response)
            self._added.set()
            try:
                yield response
            finally:
                response.disconnected = not response.done.is_set()
                self._selector.unregister(connection)

    async def run(self) -> None:
        """Read all connections until cancelled."""
        while True:
            if not self._selector.get_map():
                self._added = trio.Event()
                await self._added.wait()
            await trio.lowlevel.wait_readable(self._selector.fileno())
            for key, _ in self._selector.select(0):
                _read(key.fileobj, key.data)  # type: ignore[arg-type]

    def close(self) -> None:
        """Close the selector."""
        self._selector.close()


@asynccontextmanager
async def open_response_recorder() -> AsyncIterator[ResponseRecorder]:
    """Open a recorder, and run its reading task."""
    recorder = ResponseRecorder()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(recorder.run)
            yield recorder
            nursery.cancel_scope.cancel("nothing more to record")
    finally:
        recorder.close()


def _connect(url: SplitResult) -> socket.socket:
    secure = url.scheme == "https"
    connection = socket.create_connection((url.hostname, url.port or (443 if secure else 80)), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if secure:
        return ssl.create_default_context().wrap_socket(connection, server_hostname=url.hostname)
    return connection


def _read(connection: socket.socket, response: RecordedResponse) -> None:
    """Read all available bytes; TLS may hold decrypted bytes that no selector reports."""
    while not response.done.is_set():
        try:
            data = connection.recv(READ_SIZE)
            if not data or response.add(time.perf_counter(), data):
                response.finish()
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except (OSError, h11.RemoteProtocolError) as problem:
            response.error = str(problem) or type(problem).__name__
            response.finish()
        if not isinstance(connection, ssl.SSLSocket):
            return


@attrs.frozen
class Answer:
    """One streamed response.

    Args:
        sent: Time of the request, in seconds of `time.perf_counter`.
        arrivals: Times at which content, reasoning or parts of a tool call arrived.
        tokens: Number of generated tokens by the server's count, else the number of arrivals.
        prompt_tokens: Number of prompt tokens by the server's count; 0 without one.
        cached_tokens: Number of cached prompt tokens by the server's count; None without one.
        alternatives: Number of top candidates for each token with a log-probability.
        error: Reason for a missing or incomplete response.
        refused: True if the server sent an error status.
    """

    sent: float
    arrivals: tuple[float, ...]
    tokens: int
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    text: str = ""
    alternatives: tuple[int, ...] = ()
    error: str | None = None
    refused: bool = False

    @property
    def time_to_first_token(self) -> float:
        """Time to first token, in seconds."""
        return self.arrivals[0] - self.sent

    @property
    def inter_token_latencies(self) -> list[float]:
        """Inter-token latencies, in seconds."""
        return [later - earlier for earlier, later in zip(self.arrivals, self.arrivals[1:], strict=False)]


class _RefusedError(ValueError):
    """The status is not 200."""


def parse_answer(response: RecordedResponse) -> Answer:
    """Parse a recorded response of `POST /v1/chat/completions` with `stream`."""
    arrivals: list[float] = []
    text: list[str] = []
    alternatives: list[int] = []
    usage: dict[str, Any] = {}
    refused = False
    try:
        for now, chunk in _chunks(response):
            if "error" in chunk:
                raise ValueError(str(chunk["error"].get("message", chunk["error"])))
            usage = chunk.get("usage") or usage
            for choice in chunk.get("choices", ()):
                delta = choice.get("delta", {})
                piece = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning")
                if piece or delta.get("tool_calls"):
                    arrivals.append(now)
                    text.append(piece or "")
                scored = (choice.get("logprobs") or {}).get("content") or ()
                alternatives += (len(token.get("top_logprobs") or ()) for token in scored)
        error = response.error or (None if arrivals else "the answer is empty")
    except (ValueError, KeyError, AttributeError, h11.RemoteProtocolError) as problem:
        error = str(problem) or type(problem).__name__
        refused = isinstance(problem, _RefusedError)
    return Answer(
        sent=response.sent,
        arrivals=tuple(arrivals),
        tokens=usage.get("completion_tokens", len(arrivals)),
        prompt_tokens=usage.get("prompt_tokens", 0),
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        text="".join(text),
        alternatives=tuple(alternatives),
        error=error,
        refused=refused,
    )


def _chunks(response: RecordedResponse) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield the JSON documents of the server-sent events, with their arrivals.

    Raises:
        ValueError: The server refused, or did not send JSON.
    """
    unfinished = b""
    for now, data in _body(response):
        *events, unfinished = (unfinished + data.replace(b"\r\n", b"\n")).split(b"\n\n")
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                    yield now, json.loads(line[5:])


def _body(response: RecordedResponse) -> Iterator[tuple[float, bytes]]:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    status, refusal = 0, b""
    if not any(data for _, data in response.chunks):
        raise ValueError(response.error or "the server hung up without an answer")
    end = [] if response.disconnected else [(0.0, b"")]
    for now, data in [*response.chunks, *end]:
        if connection.their_state is h11.DONE:
            break
        connection.receive_data(data)
        while not isinstance(event := connection.next_event(), type):
            match event:
                case h11.Response():
                    status = event.status_code
                case h11.Data() if status == 200:
                    yield now, bytes(event.data)
                case h11.Data():
                    refusal += event.data
                case h11.EndOfMessage() | h11.ConnectionClosed():
                    break
    if status != 200:
        raise _RefusedError(_refusal(status, refusal))


def _refusal(status: int, body: bytes) -> str:
    try:
        return f"HTTP {status}: {json.loads(body)['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status}: {body.decode('utf-8', 'replace')[:200]}"


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
    """

    base: str
    model: str
    api_key: str = "none"


async def find_endpoint(url: str, model: str | None, api_key: str) -> Endpoint:
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
    return Endpoint(base, model, api_key)


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


_VOCABULARY = """
able arch autumn badge barn beach bench blade board book bottle brass brick brook cabin camp candle card
castle cedar chair chart circle clock coal coin coral corn crane crown curtain dawn dish door dream dust
earth edge engine farm fence field fire flame flock floor flute forest fork fountain frame fruit gate glass
glove grain grass grove hail harbor heart herb honey horn house inch iron ivory jar kettle king knot lamp
laurel leaf lens light lime lion loom marble mask metal mint mist moss mouse nail nest north oasis ocean
onion orange otter owl palace paper path pebble piano pine planet pocket pond prism queen rain reed rice
ring road rock root rose saddle salt scale sea shadow ship silk sky smoke song spice spring star stone straw
street summer swan tea tent thunder tiger tower train tulip valley velvet vine wagon water wax west wheat
willow window winter wood wren year
"""
WORDS = _VOCABULARY.split()


class Prompts:
    """An endless source of prompts.

    Args:
        seed: Seed of a repeatable sequence; None for a new one each time.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def text(self, words: int) -> str:
        """Return that many random words."""
        return " ".join(self._random.choices(WORDS, k=words))

    def chat(self, words: int) -> ChatMessages:
        """Return a conversation of one message."""
        return [{"role": "user", "content": self.text(words)}]

    def new_seed(self) -> int:
        """Return a seed for a request, or for another `Prompts`."""
        return self._random.getrandbits(31)


def text_of(content: Any) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content)

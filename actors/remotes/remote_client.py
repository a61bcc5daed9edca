"""The connection to a remote: sends calls within limits, and tells whose fault a failure is."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, NoReturn

import httpx2
import trio

from greenroom.actors.remotes.remote_call import BrokenAnswer, Call, ReportedError, as_json, words_of
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings.remotes import Remote

MAX_ERROR = 64 * 1024
MAX_ANSWER = 256 * 1024 * 1024
"""Most bytes of an answer."""
MAX_LINE = 4 * 1024 * 1024
"""Longest line of a stream of events, in bytes."""
MAX_LIST = 8 * 1024 * 1024
VERSION = "2023-06-01"
"""Version of Anthropic's protocol."""
HOP = "x-greenroom-hop"
"""Header of requests that have come from another Greenroom, which are not sent on."""
_CLOSE_SECONDS = 0.1
_PAUSE = 5.0
_LONGEST_PAUSE = 600.0
_CONTEXT = ("context_length_exceeded", "maximum context length", "prompt is too long")

Traffic = Callable[[int, int], None]
"""Callback for bytes that were sent and received."""


class CallFailure(Exception):
    """An error of a call.

    Args:
        problem: Problem for the client; that of a fault of the remote has none of its words.
        counts: True if the breaker counts it.
        pause: Seconds in which the remote wants no requests; 0 for none.
        reason: Reason in a few words, for operators.
    """

    def __init__(self, problem: Problem, reason: str, *, counts: bool = True, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.problem, self.reason, self.counts, self.pause = problem, reason, counts, pause


class RemoteClient:
    """A client of one remote, with connections that stay open.

    Args:
        name: Name of the remote, for problems.
        traffic: Callback for bytes that were sent and received.
    """

    def __init__(self, name: str, remote: Remote, traffic: Traffic = lambda sent, received: None) -> None:
        self._name, self._remote, self._traffic = name, remote, traffic
        self._client: httpx2.AsyncClient | None = None
        self._opening = trio.Lock()

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            with trio.move_on_after(1.0, shield=True):
                await self._client.aclose()

    async def get(self, url: str, key: str | None, seconds: float) -> Any:
        """Return the JSON at an address of the remote.

        Raises:
            CallFailure: There is none.
        """
        client = await self._open()
        with trio.move_on_after(seconds):
            request = client.build_request("GET", url, headers=self._headers(key))
            async with _Sent(self, client, request) as response:
                if response.status_code != 200:
                    await self._refuse(response)
                try:
                    return _decode(await self._read(response, MAX_LIST))
                except BrokenAnswer as error:
                    self._fail("failed", f"it sent {error}")
        self._fail("silent", f"it did not answer within {seconds:g} s", status=504)

    async def ask(
        self, call: Call, key: str | None, headers: dict[str, str], deliver: Callable[[InferenceEvent], None]
    ) -> None:
        """Send a call, and deliver the events of its answer as they come.

        Args:
            key: API key of the remote.
            headers: Further headers.
            deliver: Callback for events; must not block.

        Raises:
            CallFailure: The answer did not come to its end.
        """
        client, limits = await self._open(), self._remote
        with trio.move_on_after(limits.first_token_timeout) as patience:

            def take(event: InferenceEvent) -> None:
                patience.deadline = trio.current_time() + limits.silence_timeout
                deliver(event)

            with ExitStack() as files:
                request = self._request(client, call, key, headers, files)
                async with _Sent(self, client, request) as response:
                    if response.status_code != 200:
                        await self._refuse(response)
                    await self._receive(response, call, take, patience)
        if patience.cancelled_caught and not call.reader.finished:
            self._fail("silent", "it was silent for too long", status=504)

    def _request(
        self,
        client: httpx2.AsyncClient,
        call: Call,
        key: str | None,
        headers: dict[str, str],
        files: ExitStack,
    ) -> httpx2.Request:
        url, further = f"{self._remote.base}{call.path}", {**self._headers(key), **headers}
        if call.file is None:
            content = as_json(call.body).encode("utf-8", "replace")
            self._traffic(len(content), 0)
            further["content-type"] = "application/json"
            return client.build_request("POST", url, headers=further, content=content)
        file = files.enter_context(Path(call.file).open("rb"))  # noqa: SIM115 (the stack closes it)
        self._traffic(Path(call.file).stat().st_size, 0)
        name = f"recording.{_sound_suffix(file.read(16))}"
        file.seek(0)
        parts = {"file": (name, file)}  # the form reads it in pieces
        return client.build_request("POST", url, headers=further, data=dict(call.body), files=parts)

    def _headers(self, key: str | None) -> dict[str, str]:
        return headers_of(self._remote, key)

    async def _open(self) -> httpx2.AsyncClient:
        async with self._opening:
            if self._client is None:
                context = await trio.to_thread.run_sync(tls_context, self._remote.ca_file)
                timeout = httpx2.Timeout(None, connect=self._remote.connect_timeout)
                # What the environment says of proxies and passwords would send requests elsewhere.
                # A cookie would tie together the requests of different clients.
                jar = CookieJar(DefaultCookiePolicy(allowed_domains=()))
                self._client = httpx2.AsyncClient(
                    verify=context, timeout=timeout, trust_env=False, cookies=jar
                )
            return self._client

    async def _refuse(self, response: httpx2.Response) -> NoReturn:
        status = response.status_code
        body = b""
        if status >= 400:
            body = await self._read(response, MAX_ERROR, cuts=True)
        try:
            error = _object(_decode(body)).get("error")
        except BrokenAnswer:
            error = None
        self._refuse_status(status, *words_of(error), _retry_after(response))

    def _refuse_status(self, status: int, code: str, text: str, pause: float | None) -> NoReturn:
        """Raise the failure of a status; the remote's own words go to the client of a 400 alone."""
        name = self._name
        if any(mark in code or mark in text for mark in _CONTEXT):
            detail = f"The remote '{name}' says: {text}"
            problem = Problem(400, "context_length_exceeded", detail, "messages")
            raise CallFailure(problem, "the context is too long", counts=False)
        if status in (401, 402, 403):
            detail = f"The remote '{name}' refuses its key, or what the key may do (status {status})."
            raise CallFailure(Problem(503, "remote_refused", detail), f"status {status}", counts=False)
        if status == 404:
            detail = f"The remote '{name}' does not have this model, or this route."
            raise CallFailure(Problem(404, "model_not_found", detail, "model"), "status 404", counts=False)
        if status == 429 or (status in (503, 529) and pause is not None):
            seconds = min(_PAUSE if pause is None else pause, _LONGEST_PAUSE)
            detail = f"The remote '{name}' has too much to do (status {status})."
            problem = Problem(
                429 if status == 429 else 503, "remote_busy", detail, retry_after=max(1, round(seconds))
            )
            raise CallFailure(problem, f"status {status}", counts=False, pause=seconds)
        if status == 408 or status >= 500:
            self._fail("failed", f"status {status}")
        if status < 400:
            self._fail("failed", f"it leads elsewhere, or has no answer (status {status})")
        detail = f"The remote '{name}' refuses the request (status {status}): {text}"
        raise CallFailure(Problem(400, "remote_refused_request", detail), f"status {status}", counts=False)

    def _fail(self, kind: str, reason: str, *, status: int = 503) -> NoReturn:
        detail = f"The remote '{self._name}' failed: {reason}."
        raise CallFailure(Problem(status, f"remote_{kind}", detail, retry_after=5), reason)

    async def _receive(
        self,
        response: httpx2.Response,
        call: Call,
        take: Callable[[InferenceEvent], None],
        patience: trio.CancelScope,
    ) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        reader = call.reader
        try:
            if kind == "text/event-stream" and not call.is_binary:
                await self._follow(response, reader_of_events(call, take), patience)
            elif kind == "application/json":
                for event in reader.whole(_object(_decode(await self._read(response, MAX_ANSWER)))):
                    take(event)
            elif call.is_binary and (kind.startswith("audio/") or kind == "application/octet-stream"):
                await self._follow(response, lambda data: _deliver(reader.piece(data), take), patience)
            else:
                raise BrokenAnswer("content of another type")
            if not reader.finished:
                _deliver(reader.end(), take)
        except BrokenAnswer as error:
            self._fail("failed", f"it sent {error}")
        except ReportedError as error:
            busy = any(mark in error.code for mark in ("rate_limit", "overloaded", "429", "529"))
            status = 429 if busy else 400 if "invalid_request" in error.code else 500
            self._refuse_status(status, error.code, error.text, None)

    async def _follow(
        self, response: httpx2.Response, feed: Callable[[bytes], bool], patience: trio.CancelScope
    ) -> None:
        """Pass on the bytes of an answer; `feed` returns whether it is complete."""
        failure: Exception | None = None
        is_complete = False
        size = 0
        # Cancelled rather than left: an unfinished generator would be closed by the garbage collector.
        with trio.CancelScope() as reading:
            async for data in response.aiter_raw():
                size += len(data)
                self._traffic(0, len(data))
                if is_complete or failure is not None:
                    continue
                try:
                    if size > MAX_ANSWER:
                        raise BrokenAnswer(f"more than {MAX_ANSWER:,} bytes")
                    is_complete = feed(data)
                except (BrokenAnswer, ReportedError) as error:
                    failure = error
                    reading.cancel()
                if is_complete:  # the end of the bytes lets the connection be used again
                    patience.deadline = min(patience.deadline, trio.current_time() + _CLOSE_SECONDS)
        if failure is not None:
            raise failure

    async def _read(self, response: httpx2.Response, most: int, *, cuts: bool = False) -> bytes:
        """Return a body of at most some bytes."""
        body = bytearray()

        def feed(data: bytes) -> bool:
            body.extend(data[: most + 1 - len(body)])
            if len(body) > most:
                raise BrokenAnswer(f"more than {most:,} bytes")
            return False

        try:
            await self._follow(response, feed, trio.CancelScope())
        except BrokenAnswer as error:
            if not cuts:
                self._fail("failed", f"it sent {error}")
        return bytes(body)


def headers_of(remote: Remote, key: str | None) -> dict[str, str]:
    """Return the headers of every request to a remote."""
    headers = {"accept-encoding": "identity", "user-agent": "greenroom", HOP: "1"}
    if key is not None and remote.api == "anthropic":
        headers["x-api-key"] = key
    elif key is not None:
        headers["authorization"] = f"Bearer {key}"
    if remote.api == "anthropic":
        headers["anthropic-version"] = VERSION
    return headers


class _Sent:
    """A response to a request, closed at the end; failures of the transport become those of the remote."""

    def __init__(self, owner: RemoteClient, client: httpx2.AsyncClient, request: httpx2.Request) -> None:
        self._owner, self._client, self._request = owner, client, request
        self._response: httpx2.Response | None = None

    async def __aenter__(self) -> httpx2.Response:
        try:
            self._response = await self._client.send(self._request, stream=True, follow_redirects=False)
        except httpx2.TransportError as error:
            self._explain(error)
        if self._response.headers.get("content-encoding", "identity").lower() != "identity":
            await self._close()
            self._owner._fail("failed", "it sent a compressed answer, which was not asked for")
        return self._response

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        await self._close()
        if isinstance(error, httpx2.TransportError | httpx2.StreamError):
            self._explain(error)

    async def _close(self) -> None:
        if self._response is not None:
            with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                await self._response.aclose()

    def _explain(self, error: Exception) -> NoReturn:
        # Texts of these errors may quote what was received.
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            tls = any("SSL" in type(each).__name__ or "CERTIFICATE" in str(each) for each in _causes(error))
            why = "its certificate is not trusted" if tls else "it cannot be reached"
            self._owner._fail("unreachable", why)
        self._owner._fail("failed", f"the connection broke ({type(error).__name__})")


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def reader_of_events(call: Call, take: Callable[[InferenceEvent], None]) -> Callable[[bytes], bool]:
    """Return a function that reads pieces of a stream of events, and returns whether it is complete."""
    lines, reader = Lines(), call.reader

    def feed(data: bytes) -> bool:
        for line in lines.split(data):
            if not line.startswith(b"data:") or reader.finished:
                continue
            content = line[5:].strip()
            if content == b"[DONE]":
                _deliver(reader.end(), take)
            elif content:
                _deliver(reader.event(_object(_decode(content))), take)
        return reader.finished

    return feed


def _deliver(events: Iterator[InferenceEvent], take: Callable[[InferenceEvent], None]) -> bool:
    for event in events:
        take(event)
    return False


class Lines:
    """Splits bytes into lines that end with LF, CR LF or CR, of a bounded length."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def split(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete with further bytes.

        Raises:
            BrokenAnswer: A line is too long.
        """
        self._rest += data
        if b"\n" not in data and b"\r" not in data:
            lines: list[bytes] = []
        else:
            lines = bytes(self._rest).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            self._rest = bytearray(lines.pop())
        if len(self._rest) > MAX_LINE:
            raise BrokenAnswer(f"a line of more than {MAX_LINE:,} bytes")
        return lines


def _decode(content: bytes) -> Any:
    try:
        found = json.loads(content)
        if b"\\ud" in content.lower():  # lone surrogates could not be sent on
            found = json.loads(as_json(found).encode("utf-8", "replace"))
        return found
    except (ValueError, RecursionError):
        raise BrokenAnswer("broken JSON") from None


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BrokenAnswer("JSON that is no object")
    return value


def _retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds of `Retry-After`; None without one. A date counts as the usual pause."""
    asked = response.headers.get("retry-after")
    if asked is None:
        return None
    return (
        min(float(asked), _LONGEST_PAUSE)
        if asked.isascii() and asked.isdigit() and len(asked) < 9
        else _PAUSE
    )


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return a context with the certificates of a file, else with the usual ones; it reads the disk."""
    if ca_file is None:
        return httpx2.create_ssl_context()
    return ssl.create_default_context(cafile=str(Path(ca_file).expanduser()))


def _sound_suffix(head: bytes) -> str:
    """Return the suffix of a recording's name, by which some servers choose its reader."""
    for beginning, suffix in (
        (b"RIFF", "wav"),
        (b"OggS", "ogg"),
        (b"fLaC", "flac"),
        (b"\x1aE\xdf\xa3", "webm"),
    ):
        if head.startswith(beginning):
            return suffix
    return "m4a" if head[4:8] == b"ftyp" else "mp3"

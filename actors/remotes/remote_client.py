"""The connection to a remote: sends calls within limits, and tells whose fault a failure is."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext, suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import httpx2
import msgspec
import trio

from greenroom.actors.remotes.remote_call import BrokenAnswer, Call, Reader, ReportedError, as_json
from greenroom.engine.catalog.load_failures import chain
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings.remotes import Remote

MAX_ANSWER = 256 * 1024 * 1024
"""Most bytes of an answer."""
MAX_LINE = 4 * 1024 * 1024
"""Longest line of a stream of events, in bytes."""
MAX_LIST = 8 * 1024 * 1024
MAX_ERROR = 64 * 1024
VERSION = "2023-06-01"
"""Version of Anthropic's protocol."""
HOP = "x-greenroom-hop"
"""Header of requests that have come from another Greenroom, which are not sent on."""
_CLOSE_SECONDS = 0.1
_PAUSE = 5.0
_LONGEST_PAUSE = 600.0
_LINE_ENDS = re.compile(rb"\r\n|\r|\n")
_CONTEXT = ("context_length_exceeded", "maximum context length", "prompt is too long")

Take = Callable[[InferenceEvent], None]
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

    async def get(self, url: str, key: str | None, seconds: float) -> tuple[Any, str]:
        """Return the JSON at an address of the remote, and the date of its answer.

        Raises:
            CallFailure: There is none.
        """
        client = await self._open()
        with trio.move_on_after(seconds):
            request = client.build_request("GET", url, headers=headers_of(self._remote, key))
            async with self._sent(client, request) as response:
                return _decode(await self._read(response, MAX_LIST)), response.headers.get("date", "")
        self.fail("silent", f"it did not answer within {seconds:g} s", status=504)

    async def ask(self, call: Call, key: str | None, headers: dict[str, str], deliver: Take) -> None:
        """Send a call with further headers, and deliver the events of its answer, without blocking, as they
        come.

        Raises:
            CallFailure: The answer did not come to its end.
        """
        client, limits = await self._open(), self._remote
        with trio.move_on_after(limits.first_token_timeout) as patience:

            def take(event: InferenceEvent) -> None:
                patience.deadline = trio.current_time() + limits.silence_timeout
                deliver(event)

            try:
                with nullcontext() if call.file is None else Path(call.file).open("rb") as file:  # noqa: ASYNC230
                    request = self._request(client, call, {**headers_of(limits, key), **headers}, file)
                    async with self._sent(client, request) as response:
                        await self._receive(response, call, take, patience)
            except CallFailure:
                if not call.reader.finished:  # what comes behind a complete answer is of no account
                    raise
        if patience.cancelled_caught and not call.reader.finished:
            self.fail("silent", "it was silent for too long", status=504)

    def _request(
        self, client: httpx2.AsyncClient, call: Call, headers: dict[str, str], file: BinaryIO | None
    ) -> httpx2.Request:
        url = f"{self._remote.base}{call.path}"
        if file is None:
            content = as_json(call.body).encode("utf-8", "replace")
            self._traffic(len(content), 0)
            headers["content-type"] = "application/json"
            return client.build_request("POST", url, headers=headers, content=content)
        self._traffic(Path(file.name).stat().st_size, 0)
        name = f"recording.{_sound_suffix(file.read(16))}"
        file.seek(0)
        parts = {"file": (name, file)}  # the form reads it in pieces
        return client.build_request("POST", url, headers=headers, data=dict(call.body), files=parts)

    async def _open(self) -> httpx2.AsyncClient:
        async with self._opening:
            if self._client is None:
                try:
                    httpx2.URL(self._remote.base)
                    context = await trio.to_thread.run_sync(tls_context, self._remote.ca_file)
                except (httpx2.InvalidURL, OSError, RuntimeError, ValueError):
                    self.fail("unreachable", "its `url` or `ca_file` cannot be used")
                self._client = httpx2.AsyncClient(
                    verify=context,
                    timeout=httpx2.Timeout(None, connect=self._remote.connect_timeout),
                    limits=httpx2.Limits(max_keepalive_connections=self._remote.slots),
                    # What the environment says of proxies and passwords would send requests elsewhere.
                    trust_env=False,
                    # A cookie would tie together the requests of different clients.
                    cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
                )
            return self._client

    @asynccontextmanager
    async def _sent(self, client: httpx2.AsyncClient, sent: httpx2.Request) -> AsyncIterator[httpx2.Response]:
        """Yield the response to a request; errors, whose texts may quote it, become the remote's."""
        response: httpx2.Response | None = None
        try:
            response = await client.send(sent, stream=True, follow_redirects=False)
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                self.fail("failed", "it sent a compressed answer, which was not asked for")
            if response.status_code != 200:
                await self._refuse(response)
            yield response
        except BrokenAnswer as error:
            self.fail("failed", f"it sent {error}")
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            tls = any("SSL" in type(each).__name__ or "CERTIFICATE" in str(each) for each in chain(error))
            self.fail("unreachable", "its certificate is not trusted" if tls else "it cannot be reached")
        except (httpx2.TransportError, httpx2.StreamError) as error:
            self.fail("failed", f"the connection broke ({type(error).__name__})")
        finally:
            if response is not None:
                with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                    await response.aclose()

    async def _refuse(self, response: httpx2.Response) -> NoReturn:
        told = "", ""
        try:
            if response.status_code >= 400:
                with suppress(BrokenAnswer):
                    _object(await self._read(response, MAX_ERROR))
        except ReportedError as error:
            told = error.code, error.text
        self._refuse_status(response.status_code, *told, _retry_after(response))

    def _refuse_status(self, status: int, code: str, text: str, pause: float | None) -> NoReturn:
        """Raise the failure of a status; the remote's own words go to the client of a 400 alone."""
        name, reason, seconds = self._name, f"status {status}", 0.0
        if any(mark in code or mark in text for mark in _CONTEXT):
            detail, reason = f"The remote '{name}' says: {text}", "the context is too long"
            problem = Problem(400, "context_length_exceeded", detail, "messages")
        elif status in (401, 402, 403):
            detail = f"The remote '{name}' refuses its key, or what the key may do (status {status})."
            problem = Problem(503, "remote_refused", detail)
        elif status == 404:
            detail = f"The remote '{name}' does not have this model, or this route."
            problem = Problem(404, "model_not_found", detail, "model")
        elif status == 429 or (status in (503, 529) and pause is not None):
            seconds = _PAUSE if pause is None else pause
            status, detail = min(status, 503), f"The remote '{name}' has too much to do (status {status})."
            problem = Problem(status, "remote_busy", detail, retry_after=max(1, round(seconds)))
        elif status == 408 or status >= 500:
            self.fail("failed", reason)
        elif status < 400:
            self.fail("failed", f"it leads elsewhere, or has no answer (status {status})")
        else:
            detail = f"The remote '{name}' refuses the request (status {status}): {text}"
            problem = Problem(400, "remote_refused_request", detail)
        raise CallFailure(problem, reason, counts=False, pause=seconds)

    def fail(self, kind: str, reason: str, *, status: int = 503) -> NoReturn:
        """Raise the failure of a call that is the remote's own."""
        detail = f"The remote '{self._name}' failed: {reason}."
        raise CallFailure(Problem(status, f"remote_{kind}", detail, retry_after=5), reason)

    async def _receive(
        self, response: httpx2.Response, call: Call, take: Take, patience: trio.CancelScope
    ) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        reader = call.reader
        try:
            if kind == "text/event-stream" and not call.is_binary:
                await self._follow(response, EventStream(reader, take).feed, patience)
            elif kind == "application/json":
                for event in reader.whole(_object(await self._read(response, reader.most))):
                    take(event)
            elif call.is_binary and (kind.startswith("audio/") or kind == "application/octet-stream"):
                await self._follow(response, lambda data: _deliver(reader.piece(data), take), patience)
            else:
                raise BrokenAnswer("content of another type")
            if not reader.finished:
                _deliver(reader.end(), take)
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

    async def _read(self, response: httpx2.Response, most: int) -> bytes:
        """Return a body. Raises BrokenAnswer: It has more than so many bytes."""
        body = bytearray()

        def feed(data: bytes) -> bool:
            body.extend(data)
            if len(body) > most:
                raise BrokenAnswer(f"more than {most:,} bytes")
            return False

        await self._follow(response, feed, trio.CancelScope())
        return bytes(body)


def headers_of(remote: Remote, key: str | None) -> dict[str, str]:
    """Return the headers of every request to a remote."""
    headers = {"accept-encoding": "identity", "user-agent": "greenroom", HOP: "1"}
    if remote.api == "anthropic":
        return {**headers, "anthropic-version": VERSION, **({} if key is None else {"x-api-key": key})}
    return headers if key is None else {**headers, "authorization": f"Bearer {key}"}


class EventStream:
    """Reads a stream of events in lines that end with LF, CR LF or CR, of a bounded length."""

    def __init__(self, reader: Reader, take: Take) -> None:
        self._reader, self._take = reader, take
        self._rest = bytearray()

    def feed(self, data: bytes) -> bool:
        """Parse the next bytes of the stream, and return whether the answer is complete.

        Raises:
            BrokenAnswer: They are no such stream, or a line is too long.
        """
        self._rest += data
        lines: list[bytes] = []
        if _LINE_ENDS.search(data) is not None:
            *lines, rest = _LINE_ENDS.split(bytes(self._rest))
            self._rest = bytearray(rest)
        for line in lines:
            if line.startswith(b"data:") and not self._reader.finished:
                content = line[5:].strip()
                if content == b"[DONE]":
                    _deliver(self._reader.end(), self._take)
                elif content:
                    _deliver(self._reader.event(_object(content)), self._take)
        if len(self._rest) > MAX_LINE:
            raise BrokenAnswer(f"a line of more than {MAX_LINE:,} bytes")
        return self._reader.finished


def _deliver(events: Iterator[InferenceEvent], take: Take) -> bool:
    for event in events:
        take(event)
    return False


def _decode(content: bytes) -> Any:
    with suppress(ValueError, RecursionError):
        return msgspec.json.decode(content)
    try:  # what is no JSON to the strict reader: lone surrogates, which could not be sent on, and `NaN`
        return json.loads(as_json(json.loads(content)).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise BrokenAnswer("broken JSON") from None


def _object(content: bytes) -> dict[str, Any]:
    """Return an object in JSON. Raises BrokenAnswer: It is none. ReportedError: It is an error."""
    found = _decode(content)
    if not isinstance(found, dict):
        raise BrokenAnswer("JSON that is no object")
    if error := found.get("error") or (found.get("type") == "error" and found):
        raise ReportedError(error)
    return found


def _retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds of `Retry-After`; None without one. A date counts as the usual pause."""
    asked = response.headers.get("retry-after")
    if asked is None:
        return None
    return min(float(asked), _LONGEST_PAUSE) if re.fullmatch("[0-9]{1,99}", asked) else _PAUSE


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return a context with the certificates of a file, else with the usual ones; it reads the disk."""
    if ca_file is None:
        return httpx2.create_ssl_context()
    return ssl.create_default_context(cafile=str(Path(ca_file).expanduser()))


def _sound_suffix(head: bytes) -> str:
    """Return the suffix of a recording's name, by which some servers choose its reader."""
    known = {b"RIFF": "wav", b"OggS": "ogg", b"fLaC": "flac", b"\x1aE\xdf\xa3": "webm"}
    return "m4a" if head[4:8] == b"ftyp" else known.get(head[:4], "mp3")

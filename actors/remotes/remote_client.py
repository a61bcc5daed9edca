"""The connection to a remote: sends calls within limits, and tells whose fault a failure is."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import httpx2
import trio

from greenroom.actors.remotes.remote_call import (
    Answer,
    BrokenAnswer,
    Call,
    CallFailure,
    ReportedError,
    as_json,
    decoded,
    json_object,
)
from greenroom.engine.resources.device_errors import chain
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings.remotes import HOP, Remote

MAX_ANSWER = 256 * 1024 * 1024
"""Most bytes of an answer."""
MAX_LIST = 8 * 1024 * 1024
MAX_ERROR = 64 * 1024
LIST_SECONDS = 10.0
"""Longest time until a list of models is there."""
VERSION = "2023-06-01"
"""Version of Anthropic's protocol."""
NO_KEY = "its key cannot be read"
"""Reason for clients where a key is not there: only the log names its file."""
_CLOSE_SECONDS = 0.1
_PAUSE = 5.0
_LONGEST_PAUSE = 600.0
_CONTEXT = ("context_length_exceeded", "maximum context length", "prompt is too long")

Take = Callable[[InferenceEvent], None]
Traffic = Callable[[int, int], None]
"""Callback for bytes that were sent and received."""


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

    async def list_models(self) -> tuple[Any, Any, str]:
        """Return the list of models, a Greenroom's figures of their use (None without), and the list's date.
        Raises CallFailure: The list did not come.
        """
        remote, used = self._remote, None
        limit = "?limit=1000" if remote.api == "anthropic" else ""
        listed, date = await self._get(f"{remote.base}/models{limit}")
        if remote.api == "greenroom":
            with suppress(CallFailure):  # a guest's key does not open this
                used, _ = await self._get(f"{remote.root}/admin/models")
        return listed, used, date

    async def _get(self, url: str) -> tuple[Any, str]:
        client, headers = await self._open()
        with trio.move_on_after(LIST_SECONDS):
            async with self._sent(client, client.build_request("GET", url, headers=headers)) as response:
                listed = await self._read(response, MAX_LIST)
                read = decoded if listed.startswith(b"[") else json_object  # an error is no list
                return read(listed), response.headers.get("date", "")
        self.fail("silent", f"it did not answer within {LIST_SECONDS:g} s", status=504)

    async def ask(self, call: Call, further: dict[str, str], deliver: Take) -> None:
        """Send a call with further headers, and deliver the events of its answer, without blocking, as they
        come.

        Raises:
            CallFailure: The answer did not come to its end.
        """
        client, headers = await self._open()
        with trio.move_on_after(self._remote.first_token_timeout) as patience:

            def take(event: InferenceEvent) -> None:
                patience.deadline = trio.current_time() + self._remote.silence_timeout
                deliver(event)

            answer = Answer(call, take)
            try:
                with nullcontext() if call.file is None else Path(call.file).open("rb") as file:  # noqa: ASYNC230
                    request = self._request(client, call, headers | further, file)
                    async with self._sent(client, request) as response:
                        await self._receive(response, answer, patience)
            except CallFailure:
                if not answer.finished:  # what comes behind a complete answer is of no account
                    raise
        if not answer.finished:
            self.fail("silent", "it was silent for too long", status=504)

    def _request(
        self, client: httpx2.AsyncClient, call: Call, headers: dict[str, str], file: BinaryIO | None
    ) -> httpx2.Request:
        parts: dict[str, Any] = {"content": as_json(call.body)}
        if file is None:
            headers["content-type"] = "application/json"
        else:
            name = f"recording.{_sound_suffix(file.read(16))}"
            file.seek(0)
            parts = {"data": call.body, "files": {"file": (name, file)}}  # the form reads it in pieces
        request = client.build_request("POST", f"{self._remote.base}{call.path}", headers=headers, **parts)
        self._traffic(int(request.headers.get("content-length", 0)), 0)
        return request

    async def _open(self) -> tuple[httpx2.AsyncClient, dict[str, str]]:
        """Return the client, and the headers of every request."""
        remote = self._remote
        try:
            key = await trio.to_thread.run_sync(remote.key)
        except ValueError as error:
            problem = Problem(503, "remote_refused", f"The remote '{self._name}': {NO_KEY}.")
            raise CallFailure(problem, NO_KEY, counts=None, detail=str(error)) from None
        async with self._opening:
            if self._client is None:
                try:
                    httpx2.URL(remote.base)
                    context = await trio.to_thread.run_sync(_tls_context, remote.ca_file)
                except (httpx2.InvalidURL, OSError, RuntimeError, ValueError):
                    self.fail("unreachable", "its `url` or `ca_file` cannot be used")
                self._client = httpx2.AsyncClient(
                    verify=context,
                    timeout=httpx2.Timeout(None, connect=remote.connect_timeout),
                    limits=httpx2.Limits(max_keepalive_connections=remote.slots),
                    # What the environment says of proxies and passwords would send requests elsewhere.
                    trust_env=False,
                    # A cookie would tie together the requests of different clients.
                    cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
                )
        headers = {"accept-encoding": "identity", "user-agent": "greenroom", HOP: "1"}
        if remote.api == "anthropic":
            headers["anthropic-version"] = VERSION
            return self._client, headers if key is None else {**headers, "x-api-key": key}
        return self._client, headers if key is None else {**headers, "authorization": f"Bearer {key}"}

    @asynccontextmanager
    async def _sent(self, client: httpx2.AsyncClient, sent: httpx2.Request) -> AsyncIterator[httpx2.Response]:
        """Yield the response to a request; errors, whose texts may quote it, become the remote's."""
        response: httpx2.Response | None = None
        try:
            response = await client.send(sent, stream=True, follow_redirects=False)
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                self.fail("failed", "it sent a compressed answer, which was not asked for")
            if response.status_code != 200:
                with suppress(BrokenAnswer):
                    json_object(await self._read(response, MAX_ERROR))
                raise ReportedError(None)
            yield response
        except BrokenAnswer as error:
            self.fail("failed", f"it sent {error}")
        except ReportedError as error:
            assert response is not None
            self._refuse(response, error)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            tls = any("SSL" in type(each).__name__ or "CERTIFICATE" in str(each) for each in chain(error))
            self.fail("unreachable", "its certificate is not trusted" if tls else "it cannot be reached")
        except (httpx2.TransportError, httpx2.StreamError) as error:
            self.fail("failed", f"the connection broke ({type(error).__name__})")
        finally:
            if response is not None:
                with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                    await response.aclose()

    def _refuse(self, response: httpx2.Response, error: ReportedError) -> NoReturn:
        """Raise the failure of an error; the remote's own words go to the client of a 400 alone."""
        status, pause = response.status_code, _retry_after(response)
        if status == 200:  # reported within the answer
            is_busy = any(mark in error.code for mark in ("rate_limit", "overloaded", "429", "529"))
            status = 429 if is_busy else 400 if "invalid_request" in error.code else 500
        is_busy = status == 429 or (status in (503, 529) and pause is not None)
        param, reason = None, f"status {status}"
        if any(mark in error.code or mark in error.text for mark in _CONTEXT):
            told = 400, "context_length_exceeded", f"says: {error.text}"
            param, reason = "messages", "the context is too long"
        elif is_busy:
            told = min(status, 503), "remote_busy", f"has too much to do ({reason})."
        elif status in (401, 402, 403):
            told = 503, "remote_refused", f"refuses its key, or what the key may do ({reason})."
        elif status == 404:
            told, param = (404, "model_not_found", "does not have this model, or this route."), "model"
        elif status < 400 or status == 408 or status >= 500:
            self.fail("failed", f"its answer is none, or elsewhere ({reason})" if status < 400 else reason)
        else:
            told = 400, "remote_refused_request", f"refuses the request ({reason}): {error.text}"
        seconds = 0.0 if not is_busy else _PAUSE if pause is None else pause
        retry_after = max(1, round(seconds)) if is_busy else None
        problem = Problem(*told[:2], f"The remote '{self._name}' {told[2]}", param, retry_after)
        raise CallFailure(problem, reason, counts=False, pause=seconds)

    def fail(self, kind: str, reason: str, *, status: int = 503) -> NoReturn:
        """Raise the failure of a call that is the remote's own."""
        detail = f"The remote '{self._name}' failed: {reason}."
        raise CallFailure(Problem(status, f"remote_{kind}", detail, retry_after=5), reason)

    async def _receive(self, response: httpx2.Response, answer: Answer, patience: trio.CancelScope) -> None:
        call, kind = answer.call, response.headers.get("content-type", "").partition(";")[0].strip().lower()

        def feed(data: bytes) -> None:
            if answer.feed(data):  # the end of the bytes lets the connection be used again
                patience.deadline = min(patience.deadline, trio.current_time() + _CLOSE_SECONDS)

        is_sound = kind.startswith("audio/") or kind == "application/octet-stream"
        if call.form == ("sound" if is_sound else "events" if kind == "text/event-stream" else ""):
            await self._follow(response, feed, MAX_ANSWER)
            if not answer.finished:
                answer.deliver(call.end())
        elif kind == "application/json":
            found = json_object(await self._read(response, call.most))
            if call.form != "json":
                raise BrokenAnswer("JSON where none is expected")
            answer.deliver(call.read(found))
        else:
            raise BrokenAnswer("content of another type")

    async def _follow(self, response: httpx2.Response, feed: Callable[[bytes], None], most: int) -> None:
        """Pass on the bytes of an answer. Raises BrokenAnswer: It has more than `most`."""
        failure: Exception | None = None
        size = 0
        # Cancelled rather than left: an unfinished generator would be closed by the garbage collector.
        with trio.CancelScope() as reading:
            async for data in response.aiter_raw():
                size += len(data)
                self._traffic(0, len(data))
                try:
                    if size > most:
                        raise BrokenAnswer(f"more than {most:,} bytes")
                    if failure is None:
                        feed(data)
                except (BrokenAnswer, ReportedError) as error:
                    failure = failure or error
                    reading.cancel()
        if failure is not None:
            raise failure

    async def _read(self, response: httpx2.Response, most: int) -> bytes:
        body = bytearray()
        await self._follow(response, body.extend, most)
        return bytes(body)


def _retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds of `Retry-After`; None without one. A date counts as the usual pause."""
    asked = response.headers.get("retry-after")
    if asked is None:
        return None
    return min(float(asked), _LONGEST_PAUSE) if re.fullmatch("[0-9]{1,99}", asked) else _PAUSE


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return a context with the certificates of a file, else with the usual ones; it reads the disk."""
    if ca_file is None:
        return httpx2.create_ssl_context()
    return ssl.create_default_context(cafile=str(Path(ca_file).expanduser()))


def _sound_suffix(head: bytes) -> str:
    """Return the suffix of a recording's name, by which some servers choose its reader."""
    known = {b"RIFF": "wav", b"OggS": "ogg", b"fLaC": "flac", b"\x1aE\xdf\xa3": "webm"}
    return "m4a" if head[4:8] == b"ftyp" else known.get(head[:4], "mp3")

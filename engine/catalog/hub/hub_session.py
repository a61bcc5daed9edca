"""Bounds on what the hub library reads, which takes answers of any length, and waits for ever.

Its client belongs to the whole process, so the bounds are hooks that act only inside `bounded_session`; an
application that embeds Greenroom keeps its own client. Import this file only when the hub is asked: the
library takes half a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import get_session

MOST_BYTES = 32 << 20  # Bytes of all answers of one session: a list of 50,000 files has about 25 MB
_SILENCE = {"connect": 10.0, "read": 30.0, "write": 30.0, "pool": 30.0}
"""Longest waits for a sign of the hub, in seconds."""


class UnboundedAnswerError(Exception):
    """An error of answers that are too long, too slow, compressed or elsewhere; its text is a clause."""


class _Bounds:
    """The bytes and the time that one session may still take. `source`: address of the hub, the only one that
    may get the user's token.
    """

    def __init__(self, seconds: float, source: str) -> None:
        self.is_redirected = False
        self._hub = _origin(httpx2.URL(source))
        self._left = MOST_BYTES
        self._end = time.monotonic() + seconds

    def take(self, nbytes: int) -> None:
        """Count arrived bytes. Raises UnboundedAnswerError: it was too much, or too slow."""
        self._left -= nbytes
        if self._left < 0:
            raise UnboundedAnswerError(f"the hub's answer is longer than {MOST_BYTES >> 20} MB")
        if time.monotonic() > self._end:
            raise UnboundedAnswerError("the hub's answer does not end")

    def check_address(self, url: httpx2.URL, *, has_token: bool) -> None:
        """Refuse an address of another server, unless a redirect without the token leads there. Raises
        UnboundedAnswerError: the library would send the token along to the next page of a list.
        """
        if _origin(url) != self._hub and (has_token or not self.is_redirected):
            raise UnboundedAnswerError(f"the hub's list goes on at another server, '{url.host[:100]}'")


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


class _CountedStream(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, bounds: _Bounds) -> None:
        self._stream = stream
        self._bounds = bounds

    def __iter__(self) -> Iterator[bytes]:
        for data in self._stream:
            self._bounds.take(len(data))
            yield data

    def close(self) -> None:
        self._stream.close()


_hooking = threading.Lock()
_bounds: ContextVar[_Bounds | None] = ContextVar("greenroom_hub_bounds", default=None)


@contextmanager
def bounded_session(seconds: float, source: str) -> Iterator[None]:
    """Bound what this thread reads through the hub library until the context ends. `seconds`: time after
    which no further byte is read. Raises OfflineModeIsEnabled: the user forbids it.
    """
    if constants.is_offline_mode():
        raise OfflineModeIsEnabled
    hooks = get_session().event_hooks
    with _hooking:  # a second hook would count all bytes twice
        if _bound_answer not in hooks["response"]:
            hooks["request"].append(_bound_request)
            hooks["response"].append(_bound_answer)
    token = _bounds.set(_Bounds(seconds, source))
    try:
        yield
    finally:
        _bounds.reset(token)


def _bound_request(request: httpx2.Request) -> None:
    if (bounds := _bounds.get()) is not None:
        bounds.take(0)
        bounds.check_address(request.url, has_token="authorization" in request.headers)
        request.headers["accept-encoding"] = "identity"
        request.extensions = {**request.extensions, "timeout": _SILENCE}


def _bound_answer(response: httpx2.Response) -> None:
    if (bounds := _bounds.get()) is None:
        return
    bounds.is_redirected = response.is_redirect
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnboundedAnswerError("the hub's answer is compressed, which was not asked for")
    assert isinstance(response.stream, httpx2.SyncByteStream)
    response.stream = _CountedStream(response.stream, bounds)

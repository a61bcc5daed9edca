"""Transfer of one file from the hub, resumed where it was cut and checked against the hub's hash.

The hub library neither resumes nor checks: since its release 2 it begins again from zero and compares only
sizes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import attrs
import httpx2
import trio

from greenroom.engine.catalog.hub.repository import describe_refusal
from greenroom.engine.catalog.hub.snapshot import PartFile

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before another try, by the number of tries in a row that brought nothing."""

_MAX_REDIRECTS = 5
_PIECE = 1 << 20
_FLUSH_SECONDS = 0.2
_MAX_RETRY_AFTER = 60.0
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


class TransferError(Exception):
    """An error that ends a transfer; its text is a clause without a full stop."""


class _Interrupted(Exception):
    """An error after which the transfer is tried again.

    Args:
        pause: Seconds for which the server asks to wait.
    """

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


@attrs.frozen(eq=False)
class Origin:
    """The hub that a file comes from. `token`: the user's token, which no other host gets to see; None if
    there is none; `pauses`: seconds before another try, by the number of tries in a row that brought nothing.
    """

    source: str
    token: str | None = attrs.field(default=None, repr=False)
    pauses: Sequence[float] = PAUSES


@attrs.frozen(eq=False)
class FileTransfer:
    """The transfer of one file. `arrived`: callback whenever some of it has arrived, or is dropped."""

    _client: httpx2.AsyncClient
    _origin: Origin
    _part: PartFile
    _url: str
    _arrived: Callable[[], None]

    async def run(self) -> None:
        """Fetch what is missing, and make the file a blob; a cut connection is resumed. Raises TransferError:
        the hub does not give the file, or not the one that it lists. Raises OSError: the disk refuses.
        """
        failures = 0
        while True:
            had = self._part.have
            try:
                if not self._part.is_whole:
                    await self._receive()
            except (httpx2.TransportError, _Interrupted) as error:
                failures = 1 if self._part.have > had else failures + 1
                if failures > len(self._origin.pauses):
                    reason = str(error) or type(error).__name__
                    raise TransferError(
                        f"{self._name} did not arrive ({reason}); the next try resumes"
                    ) from error
                asked = error.pause if isinstance(error, _Interrupted) else 0.0
                await trio.sleep(max(asked, self._origin.pauses[failures - 1]))
                continue
            if await self._finish():
                return

    @property
    def _name(self) -> str:
        return f"'{self._part.file.path[:80]}'"

    async def _finish(self) -> bool:
        """Check the hash; return False if an earlier run's bytes were wrong, which are fetched again. Raises
        TransferError: the file is not the one that the hub lists. Raises OSError: the disk refuses.
        """
        if await trio.to_thread.run_sync(self._part.finish):
            self._arrived()
            return True
        if self._part.resumed:
            await self._restart()
            return False
        self._part.drop()
        raise TransferError(
            f"{self._name} does not have the hash that {self._origin.source} lists; it was deleted"
        )

    async def _receive(self) -> None:
        """Send one request, along its redirects, and write the answer.

        Raises:
            TransferError, OSError: See `run`.
            _Interrupted, httpx2.TransportError: The answer has ended early.
        """
        url, at_home = httpx2.URL(self._url), True
        for _ in range(_MAX_REDIRECTS + 1):
            request = self._client.build_request("GET", url, headers=self._headers(at_home))
            response = await self._client.send(request, stream=True, follow_redirects=False)
            try:
                location = response.headers.get("location")
                if response.status_code in (301, 302, 303, 307, 308) and location is not None:
                    url = _next_address(url, location)
                    at_home = at_home and _site(url) == _site(httpx2.URL(self._origin.source))
                    continue
                await self._begin(response)
                await self._write(response)
                return
            finally:
                with trio.CancelScope(shield=True):
                    await response.aclose()
        raise TransferError(f"{self._name} was redirected more than {_MAX_REDIRECTS} times")

    def _headers(self, at_home: bool) -> dict[str, str]:
        headers = {"accept-encoding": "identity", "user-agent": "greenroom"}
        if self._part.have:
            headers["range"] = f"bytes={self._part.have}-"
        if at_home and self._origin.token:
            headers["authorization"] = f"Bearer {self._origin.token}"
        return headers

    async def _begin(self, response: httpx2.Response) -> None:
        """Check an answer's status, and begin anew if it holds the whole file.

        Raises:
            TransferError, _Interrupted: It does not hold what was asked for.
        """
        status, source = response.status_code, self._origin.source
        if status in (401, 403):
            raise TransferError(describe_refusal(403 if _is_gated(response) else status, source))
        if status in _BUSY:
            raise _Interrupted(f"status {status}", _retry_after(response))
        if status == 416:
            await self._restart()
            raise _Interrupted("status 416")
        if status not in (200, 206):
            raise TransferError(f"{response.url.host} answers {self._name} with status {status}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise TransferError(f"{response.url.host} sends {self._name} encoded, which was not asked for")
        if status == 200 and self._part.have:
            await self._restart()
        elif status == 206:
            given = _RANGE.fullmatch(response.headers.get("content-range", ""))
            if given is None or int(given[1]) != self._part.have:
                await self._restart()
                raise _Interrupted("another range than the one that was asked for")

    async def _write(self, response: httpx2.Response) -> None:
        """Write an answer's bytes as they come.

        Raises:
            TransferError: There are more than the hub lists.
            OSError: The disk refuses.
            _Interrupted, httpx2.TransportError: There are fewer.
        """
        failure: OSError | TransferError | None = None
        pending, flushed = bytearray(), trio.current_time()
        # Cancelled rather than left: an unfinished generator would be closed by the garbage collector.
        with trio.CancelScope() as reading:
            try:
                async for data in response.aiter_raw():
                    pending += data
                    now = trio.current_time()
                    if len(pending) >= _PIECE or now - flushed > _FLUSH_SECONDS:
                        flushed = now
                        if (failure := await self._append(pending)) is not None:
                            reading.cancel()
                        pending.clear()
            finally:
                failure = failure or await self._append(pending)
        if failure is not None:
            raise failure
        if not self._part.is_whole:
            raise _Interrupted("the connection was cut")

    async def _append(self, data: bytearray) -> OSError | TransferError | None:
        if self._part.have + len(data) > self._part.file.size:
            self._part.drop()
            return TransferError(f"{self._name} is longer than {self._origin.source} lists")
        try:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._part.append, data)
        except OSError as error:
            return error
        self._arrived()
        return None

    async def _restart(self) -> None:
        await trio.to_thread.run_sync(self._part.restart)
        self._arrived()


def _next_address(url: httpx2.URL, location: str) -> httpx2.URL:
    """Return the address of a redirect. Raises TransferError: it is none, or leaves encryption."""
    try:
        following = url.join(location)
    except (httpx2.InvalidURL, ValueError):
        raise TransferError(f"{url.host} redirects to an invalid address") from None
    allowed = ("https",) if url.scheme == "https" else ("https", "http")
    if following.scheme not in allowed or not following.host:
        raise TransferError(f"{url.host} redirects to an address that is not {' or '.join(allowed)}")
    return following


def _site(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _is_gated(response: httpx2.Response) -> bool:
    return str(response.headers.get("x-error-code", "")) == "GatedRepo"


def _retry_after(response: httpx2.Response) -> float:
    try:
        return min(max(0.0, float(response.headers.get("retry-after", "0"))), _MAX_RETRY_AFTER)
    except ValueError:
        return 0.0

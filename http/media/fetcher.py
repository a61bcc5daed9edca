"""Fetching of files that requests reference by URL, before generation starts."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Iterator, Sequence

import attrs
import httpcore2
import httpx2
import trio

from greenroom.http.media.fetch_rules import FetchRules, not_fetchable, too_many_fetches
from greenroom.http.media.guarded_network import GuardedNetwork
from greenroom.http.media.media_reader import (
    check_file_size,
    check_total_size,
)
from greenroom.schemas.file_formats import is_pdf
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.messages import (
    AudioPart,
    ContentPart,
    DocumentPart,
    ImagePart,
    MediaPart,
    Message,
    media_of,
)
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError, invalid
from greenroom.schemas.settings.settings import Settings

FETCH_SECONDS = 20.0
"""Time limit for all files of one request, in seconds."""
MAX_REDIRECTS = 3
MAX_ADDRESSES = 64
"""Largest number of files to fetch for one request."""

_AT_ONCE = 64
_AT_ONCE_OF_A_REQUEST = 4
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = (
    (b"accept", b"image/*, application/pdf, */*;q=0.1"),
    (b"accept-encoding", b"identity"),
    (b"user-agent", b"greenroom"),
)

log = get_logger(actor="http")

Hold = Callable[[int], None]
"""Charges a request for the total bytes of its files so far; raises a ProblemError at the limit."""


class Fetcher:
    """Fetches files for the application's requests, within the limits of its settings."""

    def __init__(self, settings: Settings) -> None:
        hosts = frozenset(host.lower().strip("[].") for host in settings.images_fetch_hosts)
        self._rules = FetchRules(settings.images_fetch, hosts)
        self._all = trio.CapacityLimiter(_AT_ONCE)

    @property
    def under_way(self) -> int:
        return self._all.borrowed_tokens

    async def complete(self, request: InferenceRequest, account: Callable[[], Hold]) -> InferenceRequest:
        """Return the request with the contents of the files that it references by URL.

        Args:
            account: Creates the function that charges the files' bytes.

        Raises:
            ProblemError: 400 that names what cannot be fetched, 503 where too much is being fetched.
        """
        wanted = list(_unfetched(request))
        if not wanted:
            return request
        by_address = {part.url or "": part for part in reversed(wanted)}
        for url, part in by_address.items():
            self._rules.check(url, part.param)
        if len(by_address) > MAX_ADDRESSES:
            last = wanted[-1].param
            raise invalid(f"`{last}`: a request may name {MAX_ADDRESSES} files by their address.", last)
        fetching = _Fetching(self._rules, self._all, account(), _size(request))
        files = await fetching.fetch(by_address)
        chat = request.input
        assert isinstance(chat, ChatInput)
        messages = tuple(_with_files(message, files) for message in chat.messages)
        return attrs.evolve(request, input=attrs.evolve(chat, messages=messages))


class _Fetching:
    """Concurrent fetches of one request's files.

    Args:
        everybody: Limit on concurrent fetches of all requests.
        size: Bytes of the files inside the request itself.
    """

    def __init__(self, rules: FetchRules, everybody: trio.CapacityLimiter, hold: Hold, size: int) -> None:
        self._rules = rules
        self._everybody = everybody
        self._own = trio.CapacityLimiter(_AT_ONCE_OF_A_REQUEST)
        self._hold = hold
        self._brought = self._size = size
        self._files: dict[str, bytes] = {}
        self._problem: Problem | None = None
        self._begun = False

    async def fetch(self, wanted: dict[str, ImagePart | DocumentPart]) -> dict[str, bytes]:
        """Return the files by URL.

        Raises:
            ProblemError: One fetch failed; the others were cancelled.
        """
        context = await _tls()
        with trio.move_on_after(FETCH_SECONDS):
            async with trio.open_nursery() as nursery:
                for url, part in wanted.items():
                    nursery.start_soon(self._fetch_in_turn, url, part.param, context, nursery.cancel_scope)
        if self._problem is not None:
            raise ProblemError(self._problem)
        late = [part.param for url, part in wanted.items() if url not in self._files]
        if late and not self._begun:
            raise too_many_fetches()
        if late:
            raise not_fetchable(late[0], f"was not there after {FETCH_SECONDS:g} seconds")
        return self._files

    async def _fetch_in_turn(
        self, url: str, field: str | None, context: ssl.SSLContext, others: trio.CancelScope
    ) -> None:
        async with self._own, self._everybody:
            self._begun = True
            try:
                self._files[url] = await self._fetch_one(url, field, context)
            except ProblemError as error:
                self._problem = self._problem or error.problem
                others.cancel()

    async def _fetch_one(self, url: str, field: str | None, context: ssl.SSLContext) -> bytes:
        began = trio.current_time()
        network = GuardedNetwork(self._rules, field)
        target = self._rules.check(url, field)
        for _ in range(MAX_REDIRECTS + 1):
            got = await self._get(target, field, context, network)
            if isinstance(got, bytes):
                seconds = round(trio.current_time() - began, 3)
                log.info("file fetched", host=target.host, bytes=len(got), seconds=seconds)
                return got
            target = self._rules.check(_joined(target, got), field)
        raise not_fetchable(field, f"was redirected more than {MAX_REDIRECTS} times")

    async def _get(
        self, target: httpx2.URL, field: str | None, context: ssl.SSLContext, network: GuardedNetwork
    ) -> bytes | str:
        """Return the content of a file, or the location that its URL redirects to."""
        pool = httpcore2.AsyncConnectionPool(
            ssl_context=context, max_connections=1, max_keepalive_connections=0, network_backend=network
        )
        address = httpcore2.URL(
            scheme=target.raw_scheme, host=target.raw_host, port=target.port, target=target.raw_path
        )
        try:
            async with pool, pool.stream("GET", address, headers=_HEADERS) as response:
                headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
                if response.status in _REDIRECTS and b"location" in headers:
                    return headers[b"location"]
                if response.status != 200:
                    raise not_fetchable(field, f"was answered with the status {response.status}")
                if headers.get(b"content-encoding", "identity").lower() != "identity":
                    raise not_fetchable(field, "was sent compressed, which was not asked for")
                return await self._read(response, headers.get(b"content-length", ""), field)
        except _FAILURES as error:
            raise not_fetchable(field, f"could not be fetched ({type(error).__name__})") from None

    async def _read(self, response: httpcore2.Response, promised: str, field: str | None) -> bytes:
        name = field or "url"
        check_file_size(int(promised) if promised.isdecimal() and len(promised) < 20 else 0, name)
        parts: list[bytes] = []
        size = 0
        problem: Problem | None = None
        # Cancel rather than break: an unfinished generator would be closed by the garbage collector.
        with trio.CancelScope() as reading:
            async for part in response.aiter_stream():
                if problem is not None:
                    continue
                size += len(part)
                try:
                    self._count(size, len(part), name)
                except ProblemError as error:
                    problem = error.problem
                    reading.cancel()
                else:
                    parts.append(part)
        if problem is not None:
            raise ProblemError(problem)
        if not size:
            raise not_fetchable(field, "is an empty file")
        return b"".join(parts)

    def _count(self, size: int, growth: int, field: str) -> None:
        self._size += growth
        check_file_size(size, field)
        check_total_size(self._size, field)
        self._hold(self._size - self._brought)


_FAILURES = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
    ssl.SSLError,
    OSError,
)


async def _tls() -> ssl.SSLContext:
    return await trio.to_thread.run_sync(_read_certificates)


@functools.cache
def _read_certificates() -> ssl.SSLContext:
    # This honors SSL_CERT_FILE and SSL_CERT_DIR.
    return httpx2.create_ssl_context()


def _joined(target: httpx2.URL, location: str) -> str:
    try:
        return str(target.join(location))
    except (httpx2.InvalidURL, ValueError):
        return location


def _media(request: InferenceRequest) -> Iterator[MediaPart]:
    return media_of(request.input.messages if isinstance(request.input, ChatInput) else ())


def _unfetched(request: InferenceRequest) -> Iterator[ImagePart | DocumentPart]:
    return (part for part in _media(request) if not isinstance(part, AudioPart) and not part.data)


def _size(request: InferenceRequest) -> int:
    return sum(len(part.data) for part in _media(request))


def _with_files(message: Message, files: dict[str, bytes]) -> Message:
    parts: Sequence[ContentPart] = [_with_file(part, files) for part in message.content]
    return attrs.evolve(message, content=tuple(parts))


def _with_file(part: ContentPart, files: dict[str, bytes]) -> ContentPart:
    if not isinstance(part, ImagePart | DocumentPart) or part.url is None or part.url not in files:
        return part
    data = files[part.url]
    if isinstance(part, ImagePart) and is_pdf(data):
        return DocumentPart(data, param=part.param)
    return attrs.evolve(part, data=data, url=None)

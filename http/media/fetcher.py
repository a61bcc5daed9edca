"""Fetching of files that requests reference by URL, before generation starts."""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs
import httpcore2
import httpx2
import trio

from greenroom.http.media.media_reader import check_file_size, check_total_size
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
from greenroom.schemas.problems import Problem, ProblemError, invalid, not_fetched
from greenroom.schemas.settings.setting_groups import Fetching
from greenroom.schemas.settings.settings import Settings

FETCH_SECONDS = 20.0  # Time limit for all files of one request, in seconds
MAX_REDIRECTS = 3
MAX_ADDRESSES = 64  # Largest number of files to fetch for one request

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
    """Concurrent fetches of one request's files. `size`: bytes of the files inside the request itself."""

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
        """Return the files by URL. Raises ProblemError: one fetch failed; the others were cancelled."""
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
        pool = httpcore2.AsyncConnectionPool(
            ssl_context=context, max_connections=1, max_keepalive_connections=0, network_backend=network
        )
        address = httpcore2.URL(
            scheme=target.raw_scheme, host=target.raw_host, port=target.port, target=target.raw_path
        )
        try:
            # httpcore would name an IPv6 address without its brackets.
            headers = [(b"host", target.netloc), *_HEADERS]
            async with pool, pool.stream("GET", address, headers=headers) as response:
                sent = {name.lower(): value.decode("latin-1") for name, value in response.headers}
                if response.status in _REDIRECTS and b"location" in sent:
                    return sent[b"location"]
                if response.status != 200:
                    raise not_fetchable(field, f"was answered with the status {response.status}")
                if sent.get(b"content-encoding", "identity").lower() != "identity":
                    raise not_fetchable(field, "was sent compressed, which was not asked for")
                return await self._read(response, sent.get(b"content-length", ""), field)
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


PORTS = (80, 443, 8080, 8443)
"""Usual ports of web servers; on another port, a different service could misinterpret the request."""

_NEVER_IN_A_URL = re.compile(r"[\x00-\x20\x7f\\]")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@attrs.frozen
class FetchRules:
    """The operator's rules for fetching URLs.

    Args:
        fetching: Allowed schemes: `https` allows only https, `http` allows both.
        hosts: Trusted host names and addresses in lower case; they may be private and use any port.
    """

    fetching: Fetching
    hosts: frozenset[str]

    def check(self, url: str, field: str | None) -> httpx2.URL:
        """Return the parsed URL if the rules allow it; the host's address is checked later. Raises
        ProblemError: 400 that names the field.
        """
        if self.fetching == "off":
            raise not_fetched(field)
        parsed = self._parse(url, field)
        if parsed.scheme not in _DEFAULT_PORTS:
            raise not_fetchable(field, "is no address with https or http")
        if parsed.scheme == "http" and self.fetching != "http":
            raise not_fetchable(field, 'is not fetched without https (`[images] fetch = "http"` allows it)')
        if parsed.userinfo:
            raise not_fetchable(field, "has a user or a password in it")
        port = parsed.port or _DEFAULT_PORTS[parsed.scheme]
        if port not in PORTS and not self.trusts(parsed.host):
            known = ", ".join(map(str, PORTS))
            raise not_fetchable(field, f"has the port {port}, but files are fetched from {known} only")
        return parsed

    def trusts(self, host: str) -> bool:
        return host.lower().rstrip(".") in self.hosts

    def _parse(self, url: str, field: str | None) -> httpx2.URL:
        if _NEVER_IN_A_URL.search(url):
            raise not_fetchable(field, "has white space, control characters or backslashes in it")
        try:
            parsed = httpx2.URL(url)
            # Reading `host` decodes an international name, which may fail.
            has_host = bool(parsed.host)
        except (httpx2.InvalidURL, ValueError, TypeError):
            raise not_fetchable(field, "is no URL") from None
        if not has_host and parsed.scheme in _DEFAULT_PORTS:
            raise not_fetchable(field, "names no host")
        return parsed


def not_fetchable(field: str | None, why: str) -> ProblemError:
    """Return the error, a 400, for a file that cannot or must not be fetched. `why`: reason, which completes
    a sentence that starts with the field's name.
    """
    return invalid(f"`{field or 'url'}` {why}.", field, "file_not_fetched")


def too_many_fetches() -> ProblemError:
    detail = "This server fetches as many files as it can at once. Try again."
    return ProblemError(Problem(503, "too_many_fetches", detail, retry_after=1))


# Connections to checked addresses only: each name is looked up once, and the checked address is used.
#
# A second lookup could return another address (DNS rebinding).

_LOOKUPS = trio.CapacityLimiter(16)
"""Limit on lookup threads: a lookup cannot be cancelled, and must not use up the threads of other work."""
_MAX_ADDRESSES = 8
_CONNECT_SECONDS = 5.0


class GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to public addresses, and to hosts that the operator trusts. `field`: name of the URL's field
    in the request, for errors.
    """

    def __init__(self, rules: FetchRules, field: str | None) -> None:
        self._rules = rules
        self._field = field
        self._network = httpcore2.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to one of a host's addresses. Raises ProblemError (400): it has no address, or one that is
        not public. Raises httpcore2.ConnectError: no address accepts the connection.
        """
        addresses = await self._look_up(host, port)
        for address in addresses[:-1]:
            try:
                return await self._connect(address, port)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._connect(addresses[-1], port)

    async def _connect(self, address: str, port: int) -> httpcore2.AsyncNetworkStream:
        return await self._network.connect_tcp(address, port, _CONNECT_SECONDS, None, ())

    async def _look_up(self, host: str, port: int) -> list[str]:
        try:
            found = await trio.to_thread.run_sync(
                _addresses, host, port, abandon_on_cancel=True, limiter=_LOOKUPS
            )
        except (OSError, UnicodeError):
            raise not_fetchable(self._field, "names a host that cannot be found") from None
        addresses = found[:_MAX_ADDRESSES]
        if not addresses:
            raise not_fetchable(self._field, "names a host that cannot be found")
        if not self._rules.trusts(host) and not all(map(is_public, addresses)):
            why = "leads to an address that is not public; `[images] fetch_hosts` can name hosts that may"
            raise not_fetchable(self._field, why)
        return addresses


def _addresses(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


_IPV6_THAT_LEADS_ELSEWHERE = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "::/96",  # IPv4-compatible
        "::ffff:0:0/96",  # IPv4-mapped
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",  # NAT64 of a local network
        "100::/64",  # discarded
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fec0::/10",  # site-local
    )
)
"""IPv6 networks that are not public, or whose addresses may embed an IPv4 address that is not."""

_IPV4_RELAYS = ipaddress.IPv4Network("192.88.99.0/24")


def is_public(address: str) -> bool:
    """Return whether an address is on the public network and belongs to a single host."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if not parsed.is_global or parsed.is_multicast or parsed.is_reserved:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return parsed not in _IPV4_RELAYS
    return parsed.scope_id is None and not any(parsed in network for network in _IPV6_THAT_LEADS_ELSEWHERE)

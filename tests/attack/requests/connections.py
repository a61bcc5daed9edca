"""Malformed and abandoned connections."""

from __future__ import annotations

from hypothesis import strategies as st

from greenroom.tests.attack.requests.json_pieces import Bytes
from greenroom.tests.attack.requests.media import media_calls
from greenroom.tests.attack.requests.other_kinds import other_calls
from greenroom.tests.attack.requests.requests import bodies, calls, weighted
from greenroom.tests.attack.requests.sockets import HARMS, PATH
from greenroom.tests.attack.requests.steps import (
    Abandoned,
    Attack,
    Call,
    Ending,
    FormCall,
    HangUp,
    HarmfulSockets,
    LockedStore,
    Phase,
    RawBytes,
    References,
    Shutdown,
    SilentReaders,
    SlowReaders,
    SocketMessage,
    Step,
    Suspension,
)

_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
_CHUNKED = _HEAD + b"transfer-encoding: chunked\r\n\r\n"

LONG = (
    Bytes(b"GET /"),
    Bytes(b"a", 70_000),
    Bytes(b" HTTP/1.1\r\nhost: localhost\r\n"),
    Bytes(b"x: y\r\n", 2_000),
    Bytes(_CHUNKED),
    Bytes(b"1\r\n{\r\n", 5_000),
    Bytes(b"1;", 20_000),
)
PIECES = (
    b"\r\n",
    b"\x00",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET ?x HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET http://[::1/ HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET /../../etc/passwd HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET /v1/models/%2e%2e%2f%00 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\nhost: localhost\n\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"CONNECT evil.example:443 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n\r\n",
    _HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    _HEAD + b"content-length: -1\r\n\r\n",
    _HEAD + b"content-length: 99999999999999999999\r\n\r\n",
    _HEAD + b"content-length: 1000000\r\nexpect: 100-continue\r\n\r\n",
    _HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    _HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n",
    _CHUNKED + b"zz\r\n",
    _CHUNKED + b"fffffffffffffffff\r\n",
    _CHUNKED + b"0\r\nx: y\r\n",
)
"""Parts of requests and whole ones; a server must survive any combination."""


def attacks(
    models: tuple[str, ...], kinds: tuple[str, ...] = (), restarts: bool = True
) -> st.SearchStrategy[Attack]:
    """Return attacks on a server of these models.

    Args:
        models: Names of models that generate text.
        kinds: Names of other models, from `kinds.KINDS`.
        restarts: True to allow attacks that end and restart the server.
    """
    copies = st.sampled_from([1, 4, 30])
    endings = st.sampled_from(Ending)
    phases = st.sampled_from(Phase)
    raw = st.builds(
        RawBytes,
        st.lists(st.sampled_from((*map(Bytes, PIECES), *LONG)), min_size=1, max_size=4).map(tuple),
        endings,
        copies,
    )
    hang_ups = st.builds(HangUp, phases, endings, copies)
    requests = calls((*models, *kinds))
    other: list[tuple[int, st.SearchStrategy[Call | FormCall]]] = [
        (4, media_calls((*models[:1], *["sees"] * 5) if "sees" in kinds else models[:1]))
    ]
    if others := set(kinds) - {"sees"}:
        other.append((4, other_calls(tuple(sorted(others)), (*models[:1], *kinds))))
    abandoned = st.builds(
        Abandoned,
        weighted(*other),
        st.sampled_from([0.0, 0.02, 0.2, 1.0]),
        endings,
        copies,
    )
    readers = st.builds(SlowReaders, st.sampled_from([1, 8]))
    silent = st.builds(SilentReaders, st.sampled_from([1, 16]), st.sampled_from([1, 12]))
    references = st.builds(References, st.sampled_from([10, 2_000]), st.sampled_from([1, 4]))
    harms = st.builds(HarmfulSockets, st.sampled_from(sorted(HARMS)), st.sampled_from([1, 16, 100]))
    locked = st.builds(LockedStore, st.sampled_from([0.5, 8.0]), st.sampled_from([1, 16]))
    suspensions = st.builds(Suspension, st.sampled_from([0.5, 3.0]))
    step: st.SearchStrategy[Step] = weighted(
        (6, requests),
        *other,
        (3, hang_ups),
        (2, raw),
        (2, abandoned),
        (1, readers),
        (1, silent),
        (1, references),
        (2, harms),
        (1, locked),
        (1, _socket_messages(models)),
        (1, suspensions),
    )
    plain = st.builds(Attack, st.lists(step, min_size=1, max_size=3).map(tuple), st.booleans())
    if not restarts:
        return plain
    shutdowns = st.lists(phases, max_size=4).map(lambda drawn: Attack((Shutdown(tuple(drawn)),)))
    return weighted((25, plain), (1, shutdowns))


def _socket_messages(models: tuple[str, ...]) -> st.SearchStrategy[SocketMessage]:
    """Return messages with the hostile fields of requests to `/v1/responses`."""
    return st.builds(SocketMessage, bodies(PATH, models), st.sampled_from([1, 4, 16]))

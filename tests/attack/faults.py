"""What counts as a fault of the server, given what was seen during an attack."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import attrs

from greenroom.tests.attack.client.attacker import Exchange
from greenroom.tests.attack.client.calm_log import Calm

MEGABYTE = 1 << 20

REASONS = frozenset(
    {"queue_full", "too_many_connections", "too_many_bodies", "insufficient_memory", "draining", "not_ready"}
)
"""Codes with which a 5xx status is an answer and no fault."""
NOT_SPOKEN = frozenset({501, 505})
"""What HTTP answers to versions and codings that a server does not know (RFC 9110, 15.6)."""
PROBLEM_TYPE = "urn:greenroom:problem:"
"""Before the code, where a protocol has no place of its own for it."""
_BROKEN_WITHIN = (b'"internal_error"', b'"model_crashed"', b'"model_hung"')
"""What an answer that began with 200 must not end with."""
_REFUSED_WITHIN = re.compile(rb'"error": ?[{"]')
"""What a stream holds whose head had to be sent before its input was looked at."""


@attrs.frozen
class Limits:
    """What an attack may cost others.

    Args:
        gap: Longest wait of the calm client, in seconds.
        memory: Bytes by which the server may grow while it is attacked.
        shutdown: Seconds from the last stream's end, or the signal, to the process's.
    """

    gap: float
    memory: int = 200 * MEGABYTE
    shutdown: float = 1.0


@attrs.frozen
class Fault:
    """Something that should not have happened; faults of a kind are the same for the search."""

    kind: str
    detail: str


def of_calm(calm: Calm, limit: float, goes_on: bool) -> Iterable[Fault]:
    """Yield what the calm client suffered."""
    if calm.gap > limit:
        yield Fault("gap", f"{calm.gap * 1000:.0f} ms instead of at most {limit * 1000:.0f}")
    for detail in calm.broken:
        yield Fault("calm stream broken", detail)
    if not goes_on:
        yield Fault("calm stream silent", "no piece came after the attack")


def of_exchanges(exchanges: Iterable[Exchange]) -> Iterable[Fault]:
    """Yield what is wrong with the answers to the attack itself."""
    for exchange in exchanges:
        if exchange.timed_out:
            yield Fault("unanswered", exchange.step)
        elif _has_failed(exchange):
            yield Fault("status", f"{exchange.status} {exchange.body[:300]!r} to {exchange.step}")
        elif exchange.refused and exchange.status == 200 and not _REFUSED_WITHIN.search(exchange.body):
            yield Fault("accepted", f"{exchange.body[:300]!r} to {exchange.step}")
        elif any(code in exchange.body for code in _BROKEN_WITHIN):
            yield Fault("status", f"within the stream: {exchange.body[-300:]!r} to {exchange.step}")


def of_memory(before: int, peak: int, limit: int) -> Iterable[Fault]:
    """Yield that the server grew too much; sizes in bytes."""
    if peak - before > limit:
        yield Fault("memory", f"{(peak - before) / MEGABYTE:.0f} MB more")


def _has_failed(exchange: Exchange) -> bool:
    if exchange.status is None or exchange.status < 500:
        return False
    code = _code(exchange.body)
    return code is None or not (code in REASONS or exchange.status in NOT_SPOKEN)


def _code(body: bytes) -> str | None:
    """Return the problem's code, wherever the protocol has it."""
    try:
        answer = json.loads(body)
        if str(answer.get("type")).startswith(PROBLEM_TYPE):
            return str(answer["type"]).removeprefix(PROBLEM_TYPE)
        error = answer["error"]
        code = error["code"] if "code" in error else error["details"]["error_code"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return code if isinstance(code, str) else None

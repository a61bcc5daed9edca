"""Detection of the server's faults in observations of an attack."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import attrs

from greenroom.tests.attack.client.attacker import Exchange
from greenroom.tests.attack.client.calm_log import Calm

MEGABYTE = 1 << 20

REASONS = frozenset(
    {
        *("queue_full", "too_many_connections", "too_many_bodies", "insufficient_memory", "draining"),
        *("not_ready", "store_busy"),
    }
)
"""Error codes with which a 5xx status is a valid answer."""
NOT_SPOKEN = frozenset({501, 505})
"""HTTP's statuses for unsupported versions and transfer codings (RFC 9110, 15.6)."""
PROBLEM_TYPE = "urn:greenroom:problem:"
"""Prefix of the error code in protocols without a field for it."""
_BROKEN_WITHIN = (b'"internal_error"', b'"model_crashed"', b'"model_hung"')
"""Error codes with which a stream that began with 200 must not end."""
_REFUSED_WITHIN = re.compile(rb'"error": ?[{"]')
"""Pattern of a refusal in a stream whose head was sent before its input was checked."""


@attrs.frozen
class Limits:
    """Limits to an attack's effects on others.

    Args:
        gap: Longest wait of the calm client, in seconds.
        memory: Largest growth of the server during an attack, in bytes.
        shutdown: Seconds from the end of the last stream, or from the signal, to the end of the process.
    """

    gap: float
    memory: int = 200 * MEGABYTE
    shutdown: float = 1.0


@attrs.frozen
class Fault:
    """A fault of the server; the search treats faults of one kind as the same."""

    kind: str
    detail: str


def of_calm(calm: Calm, limit: float, goes_on: bool) -> Iterable[Fault]:
    """Yield faults seen by the calm client."""
    if calm.gap > limit:
        yield Fault("gap", f"{calm.gap * 1000:.0f} ms instead of at most {limit * 1000:.0f}")
    for detail in calm.broken:
        yield Fault("calm stream broken", detail)
    if not goes_on:
        yield Fault("calm stream silent", "no piece came after the attack")


def of_exchanges(exchanges: Iterable[Exchange]) -> Iterable[Fault]:
    """Yield faults in the answers to the attack itself."""
    for exchange in exchanges:
        if exchange.timed_out:
            yield Fault("unanswered", exchange.step)
        elif _has_failed(exchange):
            yield Fault("status", f"{exchange.status} {exchange.body[:300]!r} to {exchange.step}")
        elif exchange.refused and exchange.status in (101, 200) and not _REFUSED_WITHIN.search(exchange.body):
            yield Fault("accepted", f"{exchange.body[:300]!r} to {exchange.step}")
        elif any(code in exchange.body for code in _BROKEN_WITHIN):
            yield Fault("status", f"within the stream: {exchange.body[-300:]!r} to {exchange.step}")


def of_memory(before: int, peak: int, limit: int) -> Iterable[Fault]:
    """Yield a fault if the server grew too much; sizes in bytes."""
    if peak - before > limit:
        yield Fault("memory", f"{(peak - before) / MEGABYTE:.0f} MB more")


def _has_failed(exchange: Exchange) -> bool:
    if exchange.status is None or exchange.status < 500:
        return False
    code = _code(exchange.body)
    return code is None or not (code in REASONS or exchange.status in NOT_SPOKEN)


def _code(body: bytes) -> str | None:
    """Return the error code, in any protocol."""
    try:
        answer = json.loads(body)
        if str(answer.get("type")).startswith(PROBLEM_TYPE):
            return str(answer["type"]).removeprefix(PROBLEM_TYPE)
        error = answer["error"]
        code = error["code"] if "code" in error else error["details"]["error_code"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return code if isinstance(code, str) else None

"""Limits of requests and tokens by key, and the headers that tell clients of them."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

import attrs

from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.caller import Caller

RETRY_SECONDS = 2  # Seconds after which a client retries that has as many requests at once as it may


@attrs.frozen
class _Buckets:
    requests: TokenBucket | None
    tokens: TokenBucket | None

    def named(self) -> tuple[tuple[str, TokenBucket], ...]:
        pairs = (("requests", self.requests), ("tokens", self.tokens))
        return tuple((kind, bucket) for kind, bucket in pairs if bucket is not None)


class RateLimits:
    """The allowances of keys, in memory: after a restart, each key has its full allowance.

    A request costs one request at once, and the most tokens that it may have once its prompt is known, up to
    a minute's allowance; what it has not used is returned at its end. A key without tokens left waits until
    its debt is paid.

    Args:
        clock: Clock that never goes back, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, _Buckets] = {}
        self._running: dict[str, Counter[str]] = {}

    def admit(self, caller: Caller, request_id: str = "") -> Callable[[], None]:
        """Take a request from a key's allowance; return the function to call at the request's end.

        Raises:
            ProblemError: 429 with the seconds to wait, if requests or tokens are used up, or if as many
                requests wait or run as may at once.
        """
        most = caller.concurrent
        if most is not None and len(self._running.setdefault(caller.owner, Counter())) >= most:
            detail = f"This API key may have {most} requests at once: wait until one of them ends."
            code = "too_many_requests_at_once"
            raise ProblemError(Problem(429, code, detail, retry_after=RETRY_SECONDS))
        self._take_request(caller)
        return self.begin(caller.owner, request_id)

    def begin(self, client: str, request_id: str) -> Callable[[], None]:
        """Count a request as one that waits or runs, even after its HTTP part has ended.

        Returns:
            Function to call at its end.
        """
        if (running := self._running.get(client)) is None:
            return lambda: None
        ident = request_id.partition("-")[0]  # the prompts of one HTTP request are one request
        running[ident] += 1

        def end() -> None:
            running[ident] -= 1
            if running[ident] <= 0:
                del running[ident]

        return end

    def charge(self, client: str, tokens: int) -> None:
        """Take the most tokens that a request may cost from its key's allowance, if it has one. Raises
        ProblemError: 429 with the seconds to wait, if the tokens are used up.
        """
        if (bucket := self._tokens_of(client)) is not None:
            now = self._clock()
            _check(bucket, "tokens", now)
            bucket.take(min(tokens, bucket.per_minute), now)

    def settle(self, client: str, charged: int, used: int) -> None:
        """Return the unused part of an ended request's charge, or take what exceeds it."""
        if (bucket := self._tokens_of(client)) is not None:
            bucket.take(used - min(charged, bucket.per_minute), self._clock())

    def _tokens_of(self, client: str) -> TokenBucket | None:
        found = self._buckets.get(client)
        return None if found is None else found.tokens

    def _take_request(self, caller: Caller) -> None:
        found = self._of(caller)
        if found is None:
            return
        now = self._clock()
        for kind, bucket in sorted(found.named(), key=lambda each: -each[1].seconds_until(1, now)):
            _check(bucket, kind, now)
        if found.requests is not None:
            found.requests.take(1, now)

    def headers(self, caller: Caller, *, anthropic: bool) -> dict[str, str]:
        """Return the rest of a key's allowance, in the headers of OpenAI's API or of Anthropic's."""
        found = self._of(caller)
        if found is None:
            return {}
        headers, now = {}, self._clock()
        for kind, bucket in found.named():
            full = bucket.seconds_until(bucket.per_minute, now)
            figures = {"limit": str(bucket.per_minute), "remaining": str(bucket.left(now))}
            figures["reset"] = _moment(full) if anthropic else f"{math.ceil(full)}s"
            for figure, text in figures.items():
                name = f"anthropic-ratelimit-{kind}-{figure}" if anthropic else f"x-ratelimit-{figure}-{kind}"
                headers[name] = text
        return headers

    def _of(self, caller: Caller) -> _Buckets | None:
        limits = (caller.requests_per_minute, caller.tokens_per_minute)
        if limits == (None, None):
            return None
        found = self._buckets.get(caller.owner)
        if found is None:
            now = self._clock()
            made = (None if limit is None else TokenBucket(limit, now) for limit in limits)
            found = self._buckets[caller.owner] = _Buckets(*made)
        return found


def _check(bucket: TokenBucket, kind: str, now: float) -> None:
    seconds = bucket.seconds_until(1, now)
    if seconds > 0:
        detail = f"This API key has used up its {bucket.per_minute} {kind} a minute."
        raise ProblemError(Problem(429, "rate_limit_exceeded", detail, retry_after=math.ceil(seconds)))


def _moment(seconds: float) -> str:
    moment = datetime.fromtimestamp(math.ceil(time.time() + seconds), UTC)
    return moment.isoformat().replace("+00:00", "Z")  # RFC 3339


MINUTE = 60.0  # Seconds in which an empty bucket fills


class TokenBucket:
    """A bucket that holds a minute's allowance at most, and fills at a constant rate. `per_minute`: allowance
    of a minute, at least 1; `now`: seconds, by any clock that never goes back; the bucket is full then.
    """

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._level = float(per_minute)
        self._since = now

    def left(self, now: float) -> int:
        """Return the whole units that may be taken at once; 0 while the bucket is in debt."""
        return max(0, math.floor(self._filled(now) + 1e-9))

    def seconds_until(self, amount: float, now: float) -> float:
        """Return the seconds until it holds an amount; more than a minute's allowance counts as that."""
        missing = min(amount, self.per_minute) - self._filled(now)
        return max(0.0, missing * MINUTE / self.per_minute)

    def take(self, amount: float, now: float) -> None:
        self._level = min(float(self.per_minute), self._filled(now) - amount)
        self._since = now

    def _filled(self, now: float) -> float:
        grown = max(0.0, now - self._since) * self.per_minute / MINUTE
        return min(float(self.per_minute), self._level + grown)

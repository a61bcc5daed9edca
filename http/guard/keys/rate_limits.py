"""Limits of requests and tokens a minute by key, and the headers that tell clients of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

import attrs

from greenroom.http.guard.keys.token_bucket import TokenBucket
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.caller import Caller


@attrs.frozen
class _Buckets:
    requests: TokenBucket | None
    tokens: TokenBucket | None

    def named(self) -> tuple[tuple[str, TokenBucket], ...]:
        pairs = (("requests", self.requests), ("tokens", self.tokens))
        return tuple((kind, bucket) for kind, bucket in pairs if bucket is not None)


class RateLimits:
    """The allowances of keys, in memory: after a restart, each key has its full allowance.

    A request costs one request at once, and its tokens at its end, since nobody knows them before: a key
    without tokens left waits until its debt is paid.

    Args:
        clock: Clock that never goes back, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, _Buckets] = {}

    def admit(self, caller: Caller) -> None:
        """Take a request from a key's allowance.

        Raises:
            ProblemError: 429 with the seconds to wait, if requests or tokens are used up.
        """
        found = self._of(caller)
        if found is None:
            return
        now = self._clock()
        waits = [(bucket.seconds_until(1, now), kind, bucket) for kind, bucket in found.named()]
        seconds, kind, bucket = max(waits, key=lambda wait: wait[0])
        if seconds > 0:
            detail = f"This API key has used up its {bucket.per_minute} {kind} a minute."
            code = "rate_limit_exceeded"
            raise ProblemError(Problem(429, code, detail, retry_after=math.ceil(seconds)))
        if found.requests is not None:
            found.requests.take(1, now)

    def spend(self, owner: str, tokens: int) -> None:
        """Take the tokens of an ended request from its key's allowance, if it has one."""
        found = self._buckets.get(owner)
        if found is not None and found.tokens is not None:
            found.tokens.take(tokens, self._clock())

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


def _moment(seconds: float) -> str:
    moment = datetime.fromtimestamp(math.ceil(time.time() + seconds), UTC)
    return moment.isoformat().replace("+00:00", "Z")  # RFC 3339

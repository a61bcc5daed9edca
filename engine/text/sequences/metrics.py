"""Token counts and timing of a sequence."""

from __future__ import annotations

import time
from typing import Literal

import attrs

from greenroom.schemas.events.events import Timing
from greenroom.schemas.events.explanation import CachedTokens, Preemptions, Waits

Awaited = Literal["prefix", "disk"]
"""Cause of a prompt's wait in its turn: another prompt with the same beginning, or the disk."""


@attrs.define(eq=False)
class SequenceMetrics:
    """Figures for the usage and timing in a sequence's last event; times are from `perf_counter`.

    Args:
        cached_tokens: Prompt tokens restored from the prefix cache.
        disk_tokens: Those of them that were read from disk.
        known_tokens: Prompt tokens that the prefix cache had in some form when prefill began; None if the
            sequence uses no cache.
        written_tokens: Prompt tokens inserted into the prefix cache.
        drafted_tokens: Draft tokens that were verified, and tokens of the client's prediction.
        accepted_tokens: Draft tokens that were accepted.
        submitted_at: Time of submission.
        admitted_at: Time at which it was given memory.
        started_at: Time at which prefill began.
        first_token_at: Time at which the first token was read.
        last_token_at: End of the step that read the last token so far.
    """

    cached_tokens: int = 0
    disk_tokens: int = 0
    known_tokens: int | None = 0
    written_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    submitted_at: float = attrs.field(factory=time.perf_counter)
    admitted_at: float | None = None
    started_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None

    _awaited: Awaited | None = None
    _awaited_since: float = 0.0
    _waited: dict[Awaited, float] = attrs.field(factory=lambda: {"prefix": 0.0, "disk": 0.0})
    _waited_before_start: float = 0.0
    _preempted: Preemptions = Preemptions()
    _preempted_at: float | None = None

    def timing(self) -> Timing:
        """Return the seconds spent so far in the queue, in prefill and in decoding."""
        now = time.perf_counter()
        started = self.started_at or now
        first = self.first_token_at or now
        return Timing(queued=started - self.submitted_at, prefill=first - started, decode=now - first)

    def admit(self) -> None:
        """Record that the sequence was given memory; only the first time counts."""
        self.admitted_at = self.admitted_at or time.perf_counter()

    def wait_for(self, awaited: Awaited | None) -> None:
        """Record the cause of a wait that begins; None if the sequence is computed or awaits its turn."""
        if awaited == self._awaited:
            return
        now = time.perf_counter()
        if self._awaited is not None:
            self._waited[self._awaited] += now - self._awaited_since
        self._awaited, self._awaited_since = awaited, now

    def start(self) -> None:
        """Record the time at which prefill begins; later calls, after a preemption, change nothing."""
        if self.started_at is None:
            self.started_at = time.perf_counter()
            self._waited_before_start = sum(self._waited.values())

    def preempt(self) -> None:
        self._preempted = attrs.evolve(self._preempted, count=self._preempted.count + 1)
        self._preempted_at = time.perf_counter()

    def restart(self, tokens: int) -> None:
        """Record that a preempted sequence computes that many tokens again."""
        self._preempted = attrs.evolve(self._preempted, tokens=self._preempted.tokens + tokens)

    def resume(self) -> None:
        """Record that the sequence decodes, perhaps after it was preempted."""
        if self._preempted_at is not None:
            seconds = self._preempted.seconds + time.perf_counter() - self._preempted_at
            self._preempted = attrs.evolve(self._preempted, seconds=seconds)
            self._preempted_at = None

    def waits(self) -> Waits:
        """Return the waits so far, by cause."""
        now = time.perf_counter()
        admitted = self.admitted_at or now
        started = self.started_at or now
        waited = dict(self._waited)
        if self._awaited is not None:
            waited[self._awaited] += now - self._awaited_since
        before = self._waited_before_start if self.started_at is not None else sum(waited.values())
        turn = max(0.0, started - admitted - before)
        return Waits(memory=admitted - self.submitted_at, turn=turn, **waited)

    def preempted(self) -> Preemptions:
        """Return the preemptions so far, and their cost."""
        if self._preempted_at is None:
            return self._preempted
        seconds = self._preempted.seconds + time.perf_counter() - self._preempted_at
        return attrs.evolve(self._preempted, seconds=seconds)

    def cached(self, image_tokens: int) -> CachedTokens:
        """Return the numbers of cached tokens by place; of `image_tokens` tokens, features were cached."""
        return CachedTokens(self.cached_tokens - self.disk_tokens, self.disk_tokens, image_tokens)

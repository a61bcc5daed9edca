"""Speculative decoding for a lone sequence: decides when to draft and measures the benefit."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as GenericSequence
from typing import Literal, Protocol

import mlx.core as mx

from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.engine.text.speculation.policy import MAX_DRAFT, SpeculationPolicy
from greenroom.engine.text.speculation.verification import can_verify
from greenroom.schemas.events.statistics import SpeculationStatistics


class Drafter(Protocol):
    """Interface of draft token sources."""

    @property
    def nbytes(self) -> int:
        """Bytes of its caches."""

    def has_memory(self, reserve: Callable[[int], bool]) -> bool:
        """Reserve missing memory for drafting; return whether there is enough."""

    def begin(self, sequence: Sequence) -> None:
        """Start drafting for a sequence; its prompt is known, its answer is added later."""

    def add(self, tokens: GenericSequence[int]) -> None:
        """Add tokens of the answer, drafted or not, with a bounded amount of work."""

    def can_draft(self) -> bool:
        """Return whether a draft is possible now."""

    def draft(self, count: int) -> mx.array:
        """Return `count` draft tokens, `[count]` (uint32), possibly in flight."""

    def prefill(self) -> bool:
        """Prefill a bounded chunk of the prompt if that is worth it; return whether it did."""

    def reset(self) -> None:
        """Release the sequence's state."""


_Step = Literal["plain", "unpipelined", "verifying", "other"]


class Speculation:
    """Decides at every step of a lone sequence whether to draft, and records the results.

    A plain step is launched while the previous token is in flight. A draft needs that token, so the engine
    waits for it only if a draft is likely.

    The scheduler owns it, and passes it to the step of a lone sequence (`for_step`).

    Args:
        drafter: Source of draft tokens; None turns speculative decoding off.
        clock: Clock in seconds.

    Attributes:
        reserve: Reserves bytes of memory; returns whether they fit.
    """

    def __init__(
        self,
        drafter: Drafter | None = None,
        policy: SpeculationPolicy | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.reserve: Callable[[int], bool] = lambda nbytes: True
        self._drafter = drafter
        self._policy = policy or SpeculationPolicy()
        self._clock = clock
        self._sequence: Sequence | None = None
        self._added = 0
        self._launched: deque[_Step] = deque()
        self._last_arrival: float | None = None
        self._drafted = self._accepted = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the draft model's caches."""
        return self._drafter.nbytes if self._drafter is not None else 0

    @property
    def lookahead(self) -> int:
        """Draft tokens that a step of a lone sequence may add."""
        return MAX_DRAFT if self._drafter is not None else 0

    def statistics(self) -> SpeculationStatistics | None:
        """Return the number of drafted and accepted tokens so far; None if it is off."""
        return SpeculationStatistics(self._drafted, self._accepted) if self._drafter is not None else None

    def for_step(self, alone: bool) -> Speculation | None:
        """Return the object that proposes and measures the next step's drafts; None for no drafts.

        Args:
            alone: Whether nothing but one sequence is computed in the step.
        """
        if alone and self._drafter is not None:
            return self
        self._pause()
        return None

    def propose(self, sequence: Sequence, read: Callable[[], list[int]], in_flight: bool) -> mx.array | None:
        """Return draft tokens to verify in the next step; None for a plain step.

        Args:
            read: Waits for and returns the tokens that the sequence has sampled but not appended to its
                answer.
            in_flight: Whether those tokens are still in flight.
        """
        if in_flight and not self._launched:  # launched while others ran too
            self._launched.append("other")
        drafts, step = self._propose(sequence, read, in_flight)
        self._launched.append(step)
        return drafts

    def record_step(self) -> None:
        """Record that the token of a step without drafts has arrived."""
        milliseconds, step = self._interval()
        if milliseconds is None:
            return
        if step == "plain":
            self._policy.record_step(milliseconds)
        elif step == "unpipelined":
            self._policy.record_unpipelined(milliseconds)

    def record_verified(self, drafted: int, accepted: int) -> None:
        """Record that the tokens of a verification step have arrived."""
        self._drafted += drafted
        self._accepted += accepted
        milliseconds, _ = self._interval()
        self._policy.record_draft(drafted, accepted, milliseconds)

    def reset(self) -> None:
        self._pause()
        self._sequence = None
        if self._drafter is not None:
            self._drafter.reset()

    def _pause(self) -> None:
        """Discard measurements in progress: the next steps are not those of a lone sequence."""
        self._launched.clear()
        self._last_arrival = None

    def _propose(
        self, sequence: Sequence, read: Callable[[], list[int]], in_flight: bool
    ) -> tuple[mx.array | None, _Step]:
        without: _Step = "plain" if in_flight else "unpipelined"
        drafter = self._drafter
        if drafter is None or not can_verify(sequence):
            return None, without
        self._update(drafter, sequence, [])
        if not drafter.has_memory(self.reserve):
            return None, without
        # The token in flight is not known yet; whether a draft is possible without it is a good predictor.
        count = self._policy.draft_length(sequence.max_tokens - sequence.sampled - 1)
        if in_flight and not (count and drafter.can_draft()):
            return None, "other" if count and drafter.prefill() else "plain"
        new_tokens = read()
        if new_tokens and new_tokens[-1] in sequence.stop_token_ids:
            return None, "unpipelined"
        self._update(drafter, sequence, new_tokens)
        if not count or not drafter.can_draft():
            return None, "unpipelined"
        return drafter.draft(count), "verifying"

    def _update(self, drafter: Drafter, sequence: Sequence, new_tokens: list[int]) -> None:
        """Pass new tokens to the drafter."""
        if self._sequence is not sequence:
            self._sequence, self._added = sequence, 0
            drafter.begin(sequence)
        new = (sequence.answer[self._added :] + new_tokens)[max(0, self._added - len(sequence.answer)) :]
        self._added += len(new)
        drafter.add(new)

    def _interval(self) -> tuple[float | None, _Step]:
        """Return the milliseconds since the last token arrival, and the kind of the step that ended."""
        step: _Step = self._launched.popleft() if self._launched else "other"
        now = self._clock()
        before, self._last_arrival = self._last_arrival, now
        return (None if before is None else (now - before) * 1e3), step

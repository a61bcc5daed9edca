"""Speculative decoding for a stream that is alone: when tokens are drafted, and what it was worth."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as GenericSequence
from typing import Literal, Protocol

import mlx.core as mx

from greenroom.engine.sequences.sequence import Sequence
from greenroom.engine.speculation.policy import SpeculationPolicy
from greenroom.engine.speculation.prompt_lookup import KINDS, PromptLookup
from greenroom.engine.speculation.verification import Drafts, can_verify
from greenroom.schemas.statistics import SpeculationStatistics


class Drafter(Protocol):
    """Knows, or guesses, how a text goes on."""

    @property
    def nbytes(self) -> int:
        """Bytes of its caches."""

    def has_memory(self, lend: Callable[[int], bool]) -> bool:
        """Whether there is memory to draft, as far as any is needed."""

    def begin(self, row: Sequence) -> None:
        """Draft for this row from now on; its prompt is known, its answer is still to be added."""

    def add(self, tokens: GenericSequence[int]) -> None:
        """The answer has gone on."""

    def propose(self) -> int | None:
        """The kind of draft that could be made now; None if there is nothing to draft from."""

    def draft(self, count: int) -> mx.array:
        """That many tokens, `[count]` (uint32), which may be still under way."""

    def prefill(self, policy: SpeculationPolicy) -> bool:
        """Do a bounded piece of what has to be done before drafts can be offered; whether anything was."""

    def reset(self) -> None:
        """Free what belongs to the row."""


class LookupDrafter:
    """Drafts what followed where the text said the same before."""

    guesses = (0.3, 0.5, 0.6, 0.7)
    assert len(guesses) == KINDS
    nbytes = 0

    def __init__(self) -> None:
        self._lookup = PromptLookup(())
        self._place = 0

    def has_memory(self, lend: Callable[[int], bool]) -> bool:
        return True

    def begin(self, row: Sequence) -> None:
        self._lookup = PromptLookup(row.prompt)

    def add(self, tokens: GenericSequence[int]) -> None:
        self._lookup.add(tokens)

    def propose(self) -> int | None:
        found = self._lookup.find()
        if found is None:
            return None
        self._place, kind = found
        return kind

    def draft(self, count: int) -> mx.array:
        return mx.array(self._lookup.draft(self._place, count), dtype=mx.uint32)

    def prefill(self, policy: SpeculationPolicy) -> bool:
        return False

    def reset(self) -> None:
        self._lookup = PromptLookup(())


_Step = Literal["plain", "late", "other"] | Drafts


class Speculation:
    """Decides at every step of a lone row whether to draft, and learns from how it went.

    A plain step is launched while the token before it is on its way; drafts can be made only once that token
    is known, so it is waited for where a draft is likely, and only there.

    Args:
        clock: Seconds.

    Attributes:
        lend: Takes bytes of memory, if they are there.
    """

    def __init__(
        self, drafter: Drafter, policy: SpeculationPolicy, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.reserve: Callable[[int], bool] = lambda nbytes: True
        self._drafter = drafter
        self._policy = policy
        self._clock = clock
        self._row: Sequence | None = None
        self._known = 0
        self._launched: deque[_Step] = deque()
        self._arrived_at: float | None = None
        self._drafted = self._accepted = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the caches of a model that drafts."""
        return self._drafter.nbytes

    def statistics(self) -> SpeculationStatistics:
        """Return how many tokens were drafted so far, and how many of them were right."""
        return SpeculationStatistics(self._drafted, self._accepted)

    def propose(self, row: Sequence, read: Callable[[], list[int]], waiting: bool) -> Drafts | None:
        """Tokens to verify in the step that is about to be launched; None for a plain one.

        Args:
            read: Waits for the tokens that the row has drawn and not taken yet.
            waiting: Whether those are still under way.
        """
        if waiting and not self._launched:  # launched beside others
            self._launched.append("other")
        drafts, step = self._decide(row, read, waiting)
        self._launched.append(step)
        return drafts

    def record_step(self) -> None:
        """The token of a plain step is known."""
        milliseconds, step = self._interval()
        if milliseconds is None:
            return
        if step == "plain":
            self._policy.plain(milliseconds)
        elif step == "late":
            self._policy.late(milliseconds)

    def record_verified(self, drafts: Drafts, accepted: int) -> None:
        """The tokens of a step that verified drafts are known."""
        self._drafted += drafts.count
        self._accepted += accepted
        milliseconds, _ = self._interval()
        self._policy.verified(drafts.kind, drafts.count, accepted, milliseconds)

    def pause(self) -> None:
        """The next steps are none of a lone row: what they take says nothing."""
        self._launched.clear()
        self._arrived_at = None

    def reset(self) -> None:
        """Nothing decodes any more."""
        self.pause()
        self._row = None
        self._drafter.reset()

    def _decide(
        self, row: Sequence, read: Callable[[], list[int]], waiting: bool
    ) -> tuple[Drafts | None, _Step]:
        if not can_verify(row):
            return None, "plain" if waiting else "late"
        self._follow(row, [])
        if not self._drafter.has_memory(self.reserve):
            return None, "plain" if waiting else "late"
        # The token that is being drawn is not known yet; whether there is a draft before it tells enough.
        most = row.max_tokens - row.sampled - 1
        if waiting and not self._count(most):
            return None, "other" if self._drafter.prefill(self._policy) else "plain"
        unread = read()
        if unread and unread[-1] in row.stop_token_ids:
            return None, "late"
        self._follow(row, unread)
        kind, count = self._drafter.propose(), self._count(most)
        if kind is None or not count:
            return None, "late"
        drafts = Drafts(self._drafter.draft(count), kind)
        return drafts, drafts

    def _count(self, most: int) -> int:
        kind = self._drafter.propose()
        return 0 if kind is None else self._policy.choose(kind, most)

    def _follow(self, row: Sequence, unread: list[int]) -> None:
        """Tell the drafter what is new."""
        if self._row is not row:
            self._row, self._known = row, 0
            self._drafter.begin(row)
        new = (row.answer[self._known :] + unread)[max(0, self._known - len(row.answer)) :]
        self._known += len(new)
        self._drafter.add(new)

    def _interval(self) -> tuple[float | None, _Step]:
        """Milliseconds since the tokens before, and what was launched for these."""
        step: _Step = self._launched.popleft() if self._launched else "other"
        now = self._clock()
        before, self._arrived_at = self._arrived_at, now
        return (None if before is None else (now - before) * 1e3), step

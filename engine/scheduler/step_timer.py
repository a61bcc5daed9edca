"""What the steps and slices of the running rows took, by when their tokens arrived."""

from __future__ import annotations

import time
from collections.abc import Sequence

from greenroom.engine.batch.shape import Shape
from greenroom.engine.scheduler.cost_model import PrefillChunk, StepCosts


class StepTimer:
    """Tells which work lay between two tokens of the running rows.

    The tokens of a step are read after the next one was launched, so the slice before the last step lies
    between two reads. But launching can block when much is under way, and then it is the slice behind that
    step. Where the two differ in kind, both intervals together are looked at, or none.
    """

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self._read_at: float | None = None
        self._launched: tuple[list[Shape], int] = ([], 0)
        self._running: tuple[list[Shape], int] = ([], 0)
        self._before: list[PrefillChunk] = []
        self._behind: list[PrefillChunk] = []
        self._rise: float | None = None
        self._delay: float | None = None

    def on_launched(self, shapes: list[Shape], copied: int) -> None:
        """A step began, for which so many bytes were copied; no shapes if what it takes says nothing."""
        self._running, self._launched = self._launched, (shapes, copied)

    def on_tokens_read(self) -> None:
        """The tokens of the step before are here."""
        now = time.perf_counter()
        shapes, copied = self._running
        copying = self._launched[1]
        if self._read_at is None or not shapes:
            self._rise = self._delay = None
        elif copied or copying:
            self._rise = None
            self._observe_copy(shapes, (now - self._read_at) * 1e3, copied, copying)
        else:
            self._observe(shapes, (now - self._read_at) * 1e3)
        self._read_at = now if shapes else None

    def on_prefill_launched(self, pieces: Sequence[PrefillChunk]) -> None:
        """A slice, or none, was launched behind the step."""
        self._before, self._behind = self._behind, list(pieces)

    def _observe_copy(self, shapes: list[Shape], milliseconds: float, copied: int, copying: int) -> None:
        """A copy lies in the interval in which its step was launched or in the next: both are looked at."""
        slices = self._costs.prefill_ms([*self._before, *self._behind]) / 2
        delay = milliseconds - self._costs.decode_ms(shapes) - slices
        if copied and not copying and self._delay is not None:
            self._costs.observe_copy(copied, self._delay + delay)
        self._delay = delay if copying and not copied else None

    def _observe(self, shapes: list[Shape], milliseconds: float) -> None:
        both = [*self._before, *self._behind]
        rise, self._rise = self._rise, None
        if not both:
            self._costs.observe(shapes, [], milliseconds)
        elif self._before and self._behind:
            self._costs.observe([*shapes, *shapes], both, 2 * milliseconds)
        elif self._behind:
            self._rise = milliseconds
        elif rise is not None:
            self._costs.observe([*shapes, *shapes], both, rise + milliseconds)

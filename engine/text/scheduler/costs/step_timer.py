"""Timing of decode steps and prefill chunks from the arrival times of sampled tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from greenroom.engine.text.batch.shape import Shape
from greenroom.engine.text.scheduler.costs.cost_model import PrefillChunk, StepCosts
from greenroom.schemas.events.statistics import PhaseSeconds


class StepTimer:
    """Attributes the time between two token arrivals to the work done in between.

    A prefill chunk is launched after each step, and the tokens of a step are read after the next launch. So
    the time between two reads usually includes the chunk from before the last step. If a launch blocks
    because too much is in flight, it includes the chunk from after that step instead. If one of these chunks
    is empty and the other is not, the timer observes two intervals together, or neither.

    Args:
        costs: Cost model to update.
        clock: Clock in seconds, with any origin.
    """

    def __init__(self, costs: StepCosts, clock: Callable[[], float] = time.perf_counter) -> None:
        self._costs = costs
        self._clock = clock
        self._read_at: float | None = None
        self._launched: tuple[list[Shape], int] = ([], 0)
        self._running: tuple[list[Shape], int] = ([], 0)
        self._before: list[PrefillChunk] = []
        self._behind: list[PrefillChunk] = []
        self._restored: tuple[int, int] = (0, 0)
        self._waited: tuple[float, float] = (0.0, 0.0)
        self._before_chunk_ms: float | None = None
        self._delay_ms: float | None = None
        self._decoded: tuple[list[Shape], list[Shape]] = ([], [])
        self._decoded_at: float | None = None

    @property
    def spent(self) -> PhaseSeconds:
        """Seconds of prefill and decode so far, those without decode steps included."""
        return self._costs.spent

    def on_launched(self, shapes: list[Shape], copied: int, is_regular: bool = True) -> None:
        """Record a launched decode step.

        Args:
            shapes: Shapes of its batches.
            copied: Bytes of KV cache copied for it.
            is_regular: False if the cost model shall not learn from it.
        """
        self._running, self._launched = self._launched, (shapes if is_regular else [], copied)
        self._decoded = (self._decoded[1], shapes)

    def rest(self) -> None:
        """Forget the last arrival of tokens, since nothing decodes and the next interval is not a step."""
        self._read_at = self._decoded_at = None

    def on_tokens_read(self) -> None:
        """Record that the tokens of the previous step have arrived."""
        now = self._clock()
        shapes, copied = self._running
        copying = self._launched[1]
        self._spend(now)
        if self._read_at is None or not shapes or any(self._waited):
            self._before_chunk_ms = self._delay_ms = None
        elif copied or copying:
            self._before_chunk_ms = None
            self._observe_copy(shapes, (now - self._read_at) * 1e3, copied, copying)
        elif any(self._restored):
            self._before_chunk_ms = self._delay_ms = None
            self._observe_restoring(shapes, (now - self._read_at) * 1e3)
        else:
            self._observe(shapes, (now - self._read_at) * 1e3)
        self._read_at = now if shapes else None

    def on_prefill_launched(
        self, chunks: Sequence[PrefillChunk], restored: int = 0, waited: float = 0.0
    ) -> None:
        """Record the prefill chunks, if any, launched after the step.

        Args:
            restored: Bytes of cached prefixes copied there too.
            waited: Milliseconds of work computed there synchronously.
        """
        self._waited = (self._waited[1], waited)
        self._before, self._behind = self._behind, list(chunks)
        self._restored = (self._restored[1], restored)

    def _spend(self, now: float) -> None:
        """Add the time since the last arrival to the seconds of prefill and decode."""
        decoded = self._decoded[0]
        if decoded and self._decoded_at is not None:
            prefill_ms = self._costs.prefill_ms(self._before) + self._waited[0]
            self._costs.spend(decoded, prefill_ms, now - self._decoded_at)
        # The first step waits for the prompt before it, whose seconds the prefill queue adds.
        self._decoded_at = now if decoded else None

    def _observe_restoring(self, shapes: list[Shape], milliseconds: float) -> None:
        """Time copies of cached prefixes if they were made both before and after the step."""
        delay = milliseconds - self._costs.decode_ms(shapes)
        if all(self._restored) and not self._before and not self._behind:
            self._costs.observe_copy(sum(self._restored) // 2, max(delay, milliseconds / 20))

    def _observe_copy(self, shapes: list[Shape], milliseconds: float, copied: int, copying: int) -> None:
        """Measure the time of a cache copy.

        The copy delays the step that launched it or the step after that, so the delays of both are added.
        """
        prefill = self._costs.prefill_ms([*self._before, *self._behind]) / 2
        delay = milliseconds - self._costs.decode_ms(shapes) - prefill
        if copied and not copying and self._delay_ms is not None:
            self._costs.observe_copy(copied, self._delay_ms + delay)
        self._delay_ms = delay if copying and not copied else None

    def _observe(self, shapes: list[Shape], milliseconds: float) -> None:
        both = [*self._before, *self._behind]
        earlier, self._before_chunk_ms = self._before_chunk_ms, None
        if not both:
            self._costs.observe(shapes, [], milliseconds)
        elif self._before and self._behind:
            self._costs.observe([*shapes, *shapes], both, 2 * milliseconds)
        elif self._behind:
            self._before_chunk_ms = milliseconds
        elif earlier is not None:
            self._costs.observe([*shapes, *shapes], both, earlier + milliseconds)

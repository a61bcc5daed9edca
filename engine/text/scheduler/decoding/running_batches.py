"""The batches that decode, with the placement of sequences in them and the timing of their steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from greenroom.engine.text.batch.batch import Batch
from greenroom.engine.text.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.text.batch.shape import Shape
from greenroom.engine.text.memory.kv_memory import KvMemory
from greenroom.engine.text.scheduler.costs.cost_model import StepCosts
from greenroom.engine.text.scheduler.costs.step_timer import StepTimer
from greenroom.engine.text.scheduler.decoding.batch_policy import BatchPolicy
from greenroom.engine.text.scheduler.decoding.copy_budget import CopyBudget
from greenroom.engine.text.scheduler.decoding.placement import (
    Arrivals,
    movable,
    place,
    separate_slow,
    take_turns,
)
from greenroom.engine.text.scheduler.decoding.rearrangement import join, rearrange
from greenroom.engine.text.sequences.failures import SequenceFailures
from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.engine.text.speculation.speculation import Speculation
from greenroom.schemas.events.statistics import SpeculationStatistics

STEPS_PER_REARRANGEMENT = 32
"""Decode steps between two rearrangements: each one copies caches, and lengths grow by one token per step."""


class RunningBatches:
    """Batches sequences of similar length, moves them if that is cheaper, and times the steps.

    Args:
        costs: Cost model that learns from the timed steps.
        memory: Memory for the KV caches.
        speculation: Speculative decoding for a sequence that runs alone; None for none.
        clock: Clock in seconds, with any origin.

    Attributes:
        copies: Budget for copies of the caches.
        timer: Step timer; the engine reports token arrivals and prefill launches to it.
    """

    def __init__(
        self,
        model: Any,
        costs: StepCosts,
        policy: BatchPolicy | None,
        memory: KvMemory,
        speculation: Speculation | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model, self._memory = model, memory
        self._speculation = speculation or Speculation()
        self._speculation.reserve = memory.reserve_temporary
        self._costs = costs
        self.copies = CopyBudget(costs, memory)
        self._policy = policy or BatchPolicy()
        self._batches: list[Batch] = []
        self.timer = StepTimer(costs, clock)
        self._steps = self._copied = 0

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    @property
    def shapes(self) -> list[Shape]:
        return [batch.shape for batch in self._batches if batch.active]

    @property
    def lookahead(self) -> int:
        """Draft tokens that the next step may add."""
        return self._speculation.lookahead if self._is_single_sequence else 0

    def speculation_statistics(self) -> SpeculationStatistics | None:
        """Return the statistics of speculative decoding; None if it is off."""
        return self._speculation.statistics()

    @property
    def _is_single_sequence(self) -> bool:
        return len(self._batches) == 1 and len(self._batches[0].sequences) == 1

    @property
    def step_ms(self) -> float:
        """Predicted milliseconds of a step without prefill; 0 if nothing decodes."""
        shapes = self.shapes
        return self._costs.decode_ms(shapes) if shapes else 0.0

    @property
    def copy_ms(self) -> float:
        """Predicted milliseconds that cache copies added to the last step."""
        return self._costs.copy_ms(self._copied)

    def add(self, arrivals: Iterable[PrefilledSequences]) -> SequenceFailures:
        """Add prefilled sequences to suitable batches, with one copy per batch.

        Returns:
            The sequences that cannot be added.
        """
        per_batch: Arrivals = {}
        for prefilled in arrivals:
            batch = place(prefilled, self._batches, per_batch, self._policy, self.copies.limits)
            if batch is None:
                batch = Batch(self._model, prefilled)
                self._batches.append(batch)
            else:
                per_batch.setdefault(batch, []).append(prefilled)
        failures: SequenceFailures = []
        for batch, added in per_batch.items():
            beside, failed = join(self._model, batch, added, self._memory)
            self._batches += beside
            failures += failed
        return failures

    def maybe_rearrange(self) -> None:
        """Separate slow grammars, grow and compact caches, and periodically split or merge batches."""
        self._steps += 1
        self._batches += separate_slow(movable(self._batches), self._memory.reserve_temporary)
        for batch in movable(self._batches):
            batch.growth.grow_ahead(self._memory.size_model, self.lookahead, self._memory.reserve_temporary)
        if self._steps % STEPS_PER_REARRANGEMENT == 0:
            self._batches += rearrange(self._batches, self._policy, self.copies.limits, self._memory)
        for batch in movable(self._batches):
            batch.maybe_compact(self._memory.reserve_temporary)

    def record_memory(self) -> None:
        """Charge the memory account with the current size of the caches."""
        nbytes, largest_layer = self._speculation.nbytes, 0
        for batch in self._batches:
            usage = batch.growth.usage(self._memory.size_model)
            nbytes += usage.nbytes
            largest_layer = max(largest_layer, usage.largest_layer)
        self._memory.record_usage(nbytes, largest_layer, len(self._batches))

    def growing(self) -> list[Batch]:
        """Return the batches whose caches the next step has to grow."""
        size_model, lookahead = self._memory.size_model, self.lookahead
        return [batch for batch in movable(self._batches) if batch.growth.is_due(size_model, lookahead)]

    def release_drafts(self) -> bool:
        """Release the draft model's caches; return whether there were any."""
        if not self._speculation.nbytes:
            return False
        self._speculation.reset()
        self.record_memory()
        return True

    def release_copies(self) -> bool:
        """Wait for this step's cache copies, which frees their sources; return whether there were any."""
        if not self._memory.temporary_bytes:
            return False
        for batch in self._batches:
            batch.evaluate_cache()
        self.record_memory()
        return True

    def compact(self) -> bool:
        """Compact one batch to free memory; return whether any could be compacted."""
        memory = self._memory
        for batch in movable(self._batches):
            active, rows = batch.active, len(batch.sequences)
            if 0 < active < rows:
                layer = batch.growth.usage(memory.size_model).largest_layer_now
                if memory.reserve_temporary(layer * active // rows):
                    batch.compact(layerwise=True)
                    self.record_memory()
                    return True
        return False

    def preempt(self, sequence: Sequence) -> None:
        """Remove a sequence that is recomputed later, and discard its token in flight in any batch."""
        if any(batch.preempt(sequence) for batch in self._batches):
            for batch in self._batches:
                batch.discard_pending(sequence)
        self.remove_finished()

    def launch(self, alone: bool = False) -> bool:
        """Launch a forward pass of each due batch; return whether there were any.

        Args:
            alone: Nothing else is computed at the same time, so speculative decoding is allowed.
        """
        speculation = self._speculation.for_step(alone and self._is_single_sequence)
        launched = [batch for batch in take_turns(self._batches) if batch.launch(speculation)]
        self._copied = sum(batch.pop_copied_bytes() for batch in self._batches)
        verifies = any(batch.is_verifying for batch in self._batches)
        self.timer.on_launched([batch.shape for batch in launched], self._copied, not verifies)
        return bool(launched)

    def remove_finished(self) -> None:
        """Remove the batches that have nothing left to compute or to read."""
        self._batches = [batch for batch in self._batches if not batch.is_done]
        if not self._batches:
            self._speculation.reset()
            self.timer.rest()

    def close(self) -> None:
        self._batches.clear()
        self._model, self._speculation = None, Speculation()

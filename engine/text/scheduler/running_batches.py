"""The batches that decode, with the placement of sequences in them and the timing of their steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as GenericSequence
from typing import TYPE_CHECKING, Any

import attrs

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import GROWTH_STEP
from greenroom.engine.text.batch import Batch, Shape
from greenroom.engine.text.batch_cache import JoinError, PrefilledSequences
from greenroom.engine.text.decode_step import common_slow_grammar
from greenroom.engine.text.kv_memory import KvMemory
from greenroom.engine.text.scheduler.step_costs import StepCosts, StepTimer
from greenroom.engine.text.sequence import Sequence, SequenceFailures, not_computed
from greenroom.engine.text.speculation import Speculation

if TYPE_CHECKING:
    from greenroom.engine.grammar.masks import MaskLatency


STEPS_PER_REARRANGEMENT = 32
"""Decode steps between two rearrangements: each one copies caches, and lengths grow by one token per step."""


class RunningBatches:
    """Batches sequences of similar length, moves them if that is cheaper, and times the steps.

    Args:
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
        self.speculation = speculation or Speculation()
        self.speculation.reserve = memory.reserve_temporary
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
        return self.speculation.lookahead if self._is_single_sequence else 0

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
        nbytes, largest_layer = self.speculation.nbytes, 0
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
        if not self.speculation.nbytes:
            return False
        self.speculation.reset()
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
        """Launch a forward pass of each due batch; return whether there were any. `alone`: nothing else is
        computed at the same time, so speculative decoding is allowed.
        """
        speculation = self.speculation.for_step(alone and self._is_single_sequence)
        launched = [batch for batch in take_turns(self._batches) if batch.launch(speculation)]
        self._copied = sum(batch.pop_copied_bytes() for batch in self._batches)
        verifies = any(batch.is_verifying for batch in self._batches)
        self.timer.on_launched([batch.shape for batch in launched], self._copied, not verifies)
        return bool(launched)

    def remove_finished(self) -> None:
        self._batches = [batch for batch in self._batches if not batch.is_done]
        if not self._batches:
            self.speculation.reset()
            self.timer.rest()

    def close(self) -> None:
        self._batches.clear()
        self._model, self.speculation = None, Speculation()


@attrs.frozen
class BatchLimits:
    """Current limits on padding and copies of batches.

    Args:
        padding_per_pass: Padded tokens that cost as much as one more pass over the weights.
        copyable_tokens: Maximum number of tokens, padding included, that can be copied without a long stall.
    """

    padding_per_pass: float
    copyable_tokens: float = math.inf


@attrs.frozen
class BatchPolicy:
    """Weighs padding against one more pass over the weights. `hysteresis`: factor by which a change must pay
    off before existing batches are split or merged, since each change copies KV caches.
    """

    hysteresis: float = 1.5

    def place(self, batches: GenericSequence[Shape], arrival: Shape, limits: BatchLimits) -> int | None:
        """Return the index of the batch to add sequences to; None if a batch of their own is cheaper."""
        added = [
            padding(batch, arrival) if _copied(batch, arrival) <= limits.copyable_tokens else math.inf
            for batch in batches
        ]
        best = min(range(len(batches)), key=added.__getitem__, default=None)
        return best if best is not None and added[best] <= limits.padding_per_pass else None

    def merge(self, batches: GenericSequence[Shape], limits: BatchLimits) -> tuple[int, int] | None:
        """Return the indices of two batches that are cheaper as one; None if there are none.

        A copy reads as much memory as a pass over these rows, so it pays for itself after a few saved passes;
        only such batches are merged.
        """
        pairs = [
            (padding(batches[one], batches[other]), (one, other))
            for one in range(len(batches))
            for other in range(one + 1, len(batches))
            if _copied(batches[one], batches[other]) <= limits.copyable_tokens
        ]
        added, pair = min(pairs, default=(0, None))
        return pair if added * self.hysteresis < limits.padding_per_pass else None

    def split(self, lengths: GenericSequence[int], limits: BatchLimits) -> int | None:
        """Return the length up to which sequences are split off into a new batch; None to keep the batch.
        `lengths`: lengths in tokens of the batch's sequences.
        """
        ordered = sorted(lengths)
        if ordered and len(ordered) * ordered[-1] > limits.copyable_tokens:
            return None
        saved = [
            (count * (ordered[-1] - ordered[count - 1]), ordered[count - 1])
            for count in range(1, len(ordered))
            if ordered[count - 1] < ordered[count]
        ]
        most, length = max(saved, default=(0, 0))
        return length if most > self.hysteresis * limits.padding_per_pass else None


def _copied(one: Shape, other: Shape) -> int:
    return (one[0] + other[0]) * max(one[1], other[1])


def padding(one: Shape, other: Shape) -> int:
    """Return the padded tokens that merging two batches adds."""
    (rows, length), (more_rows, other_length) = one, other
    return (rows if length < other_length else more_rows) * abs(length - other_length)


Arrivals = dict[Batch, list[PrefilledSequences]]
"""Prefilled sequences to be added, by their target batch."""


def movable(batches: Iterable[Batch]) -> list[Batch]:
    """Return the batches whose rows can be added, removed or moved: those not waiting for a grammar mask."""
    return [batch for batch in batches if not batch.is_waiting]


def open_to(grammar: MaskLatency | None, batches: Iterable[Batch]) -> list[Batch]:
    """Return the batches that sequences with this slow grammar may join; None for sequences without one."""
    return [
        batch
        for batch in movable(batches)
        if batch.active and batch.batchable and batch.slow_grammar is grammar
    ]


def take_turns(batches: list[Batch]) -> list[Batch]:
    """Return the batches to launch, at most one with a slow grammar, which moves to the end of the list."""
    slow = [batch for batch in movable(batches) if batch.active and batch.slow_grammar is not None]
    if slow:
        batches.remove(slow[0])
        batches.append(slow[0])
    return [batch for batch in batches if batch not in slow[1:]]


def place(
    prefilled: PrefilledSequences,
    batches: Iterable[Batch],
    arrivals: Arrivals,
    policy: BatchPolicy,
    limits: BatchLimits,
) -> Batch | None:
    """Return the batch to add sequences to; None if they need a batch of their own.

    Sequences with a slow grammar share a batch only with sequences under the same grammar.
    """
    if not prefilled.batchable:
        return None
    grammar = common_slow_grammar(prefilled.sequences)
    candidates = open_to(grammar, batches)
    shapes = [_shape(batch, arrivals.get(batch, [])) for batch in candidates]
    longest = max(sequence.length for sequence in prefilled.sequences)
    index = policy.place(shapes, (len(prefilled.sequences), longest), limits)
    return None if index is None else candidates[index]


def separate_slow(batches: Iterable[Batch], reserve: Callable[[int], bool]) -> list[Batch]:
    """Split sequences with slow grammars off batches in which others would wait for them.

    Args:
        reserve: Reserves bytes for the copies; returns whether they fit.

    Returns:
        The new batches, one per slow grammar.
    """
    made: list[Batch] = []
    for batch in batches:
        by_grammar: dict[MaskLatency | None, list[Sequence]] = {}
        for sequence in batch.sequences:
            if sequence is not None:
                by_grammar.setdefault(sequence.slow_grammar, []).append(sequence)
        stays = None if None in by_grammar else next(iter(by_grammar), None)
        for grammar, sequences in by_grammar.items():
            if grammar is not stays and reserve(2 * batch.nbytes):
                made.append(batch.split(sequences))
    return made


def _shape(batch: Batch, joining: Iterable[PrefilledSequences]) -> Shape:
    rows, longest = batch.shape
    lengths = [sequence.length for prefilled in joining for sequence in prefilled.sequences]
    return rows + len(lengths), max([longest, *lengths])


def join(
    model: Any, batch: Batch, arrivals: list[PrefilledSequences], memory: KvMemory
) -> tuple[list[Batch], SequenceFailures]:
    """Add sequences to a batch if the copy fits into memory; else they decode in batches of their own.

    If joining fails, each arrival is tried by itself to find the faulty one.

    Returns:
        New batches for sequences that did not fit, and sequences that cannot be added.
    """
    sequences = [sequence for prefilled in arrivals for sequence in prefilled.sequences]
    longest = max(batch.length, *(sequence.length for sequence in sequences))
    merged = memory.size_model.nbytes(batch.active + len(sequences), longest + GROWTH_STEP)
    current = batch.nbytes + sum(caches.size_in_bytes(prefilled.cache) for prefilled in arrivals)
    try:
        if memory.reserve_temporary(2 * merged):
            batch.add(arrivals)
        elif memory.reserve_temporary(max(0, merged - current) + memory.headroom_for(merged)):
            batch.add(arrivals, layerwise=True)
        else:
            return [Batch(model, prefilled) for prefilled in arrivals], []
    except JoinError:
        if len(arrivals) == 1:
            return [], not_computed(sequences, "joining of a batch")
        made: list[Batch] = []
        failures: SequenceFailures = []
        for each in arrivals:
            beside, failed = join(model, batch, [each], memory)
            made, failures = made + beside, failures + failed
        return made, failures
    return [], []


def rearrange(
    running: Iterable[Batch], policy: BatchPolicy, limits: BatchLimits, memory: KvMemory
) -> list[Batch]:
    """Split one batch or merge two if that makes steps cheaper; return the batch split off, if any."""
    batches = open_to(None, running)
    for batch in batches:
        sequences = [sequence for sequence in batch.sequences if sequence is not None]
        longest = policy.split([sequence.length for sequence in sequences], limits)
        if longest is not None and memory.reserve_temporary(2 * batch.nbytes):
            return [batch.split([sequence for sequence in sequences if sequence.length <= longest])]
    pair = policy.merge([batch.shape for batch in batches], limits)
    if pair is not None:
        one, other = (batches[index] for index in pair)
        rows, length = one.active + other.active, max(one.length, other.length)
        if memory.reserve_temporary(2 * memory.size_model.nbytes(rows, length + GROWTH_STEP)):
            one.merge(other)
    return []


MAX_COPY_MS = 150.0
"""Most milliseconds that a copy may stall streams so that others can join; longer ones are avoided."""
MAX_COPY_PASSES = 4.0
"""Passes over the weights that a copy may last at any rate, since a batch beside costs one in every step.

On a CPU a pass takes half of `MAX_COPY_MS`, and on a busy machine copies and passes are slow together.
"""


class CopyBudget:
    """Decides which copies of KV caches are short enough not to stall running streams."""

    def __init__(self, costs: StepCosts, memory: KvMemory) -> None:
        self._costs = costs
        self._memory = memory

    @property
    def limits(self) -> BatchLimits:
        """Current limits on padding and copies of batches."""
        size_model = self._memory.size_model
        per_token = self._costs.copy_ms(size_model.nbytes(1, GROWTH_STEP)) / GROWTH_STEP
        copyable = self._longest_ms / per_token if per_token else math.inf
        return BatchLimits(self._costs.padding_per_pass, copyable)

    def is_short(self, nbytes: int) -> bool:
        return self._costs.copy_ms(nbytes) <= self._longest_ms

    @property
    def _longest_ms(self) -> float:
        return max(MAX_COPY_MS, MAX_COPY_PASSES * self._costs.pass_ms)

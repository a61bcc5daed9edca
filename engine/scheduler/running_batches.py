"""The rows that decode, in the groups in which they do, and what those cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as GenericSequence
from typing import Any

from greenroom.engine.batch.batch import Batch
from greenroom.engine.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.batch.shape import Shape
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.growth import GROWTH_STEP
from greenroom.engine.memory.kv_memory import KvMemory
from greenroom.engine.scheduler.batch_policy import BatchPolicy
from greenroom.engine.scheduler.cost_model import PrefillChunk, StepCosts
from greenroom.engine.scheduler.step_timer import StepTimer
from greenroom.engine.sequences.sequence import Sequence
from greenroom.engine.speculation.policy import MAX_DRAFT
from greenroom.engine.speculation.speculation import Speculation

_STEPS_PER_REARRANGEMENT = 32


class RunningBatches:
    """Puts rows into groups of similar length, moves them when that is cheaper, and times the steps.

    Args:
        costs: Learns what steps cost.
        memory: What the caches may take.
        speculation: Drafts tokens for a row that is alone.
    """

    def __init__(
        self,
        model: Any,
        costs: StepCosts,
        policy: BatchPolicy | None,
        memory: KvMemory,
        speculation: Speculation | None = None,
    ) -> None:
        self._model = model
        self._memory = memory
        self._speculation = speculation
        if speculation is not None:
            speculation.reserve = memory.reserve_temporary
        self._costs = costs
        self._policy = policy or BatchPolicy()
        self._batches: list[Batch] = []
        self._timer = StepTimer(costs)
        self._steps = 0
        self._copied = 0

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    @property
    def shapes(self) -> list[Shape]:
        """Of the groups that will be launched next."""
        return [group.shape for group in self._batches if group.active]

    @property
    def lookahead(self) -> int:
        """Tokens that may be drafted for the next step."""
        return MAX_DRAFT if self._speculation is not None and self._is_single_sequence else 0

    @property
    def _draft_bytes(self) -> int:
        return self._speculation.nbytes if self._speculation is not None else 0

    @property
    def _is_single_sequence(self) -> bool:
        return len(self._batches) == 1 and len(self._batches[0].sequences) == 1

    @property
    def step_ms(self) -> float:
        """What a step without prefill would take now; 0 if there is none."""
        shapes = self.shapes
        return self._costs.decode_ms(shapes) if shapes else 0.0

    @property
    def copy_ms(self) -> float:
        """What the copies for the last step delayed it by."""
        return self._costs.copy_ms(self._copied)

    def add(self, ready: Iterable[PrefilledSequences]) -> None:
        """Put rows whose prompts are done into the groups where they fit, one join per group."""
        groups = [group for group in self._batches if group.active and group.batchable]
        shapes = [group.shape for group in groups]
        arrivals: list[list[PrefilledSequences]] = [[] for _ in groups]
        for joining in ready:
            shape = (len(joining.sequences), max(row.length for row in joining.sequences))
            index = self._policy.place(shapes, shape, self._costs.padding_per_pass)
            if index is not None and joining.batchable:
                arrivals[index].append(joining)
                shapes[index] = (shapes[index][0] + shape[0], max(shapes[index][1], shape[1]))
                continue
            group = Batch(self._model, joining)
            self._batches.append(group)
            if group.batchable:
                groups.append(group)
                shapes.append(shape)
                arrivals.append([])
        for group, joinings in zip(groups, arrivals, strict=True):
            if joinings:
                self._merge(group, joinings)

    def maybe_rearrange(self) -> None:
        """Move rows to where they cost less, now and then, and cut out those that have left."""
        self._steps += 1
        if self._steps % _STEPS_PER_REARRANGEMENT == 0:
            self._rearrange()
        for group in self._batches:
            group.maybe_compact(self._memory.reserve_temporary)

    def record_memory(self) -> None:
        """Tell the account what the caches take."""
        nbytes = self._draft_bytes
        largest = 0
        for group in self._batches:
            extent = group.cache_usage(self._memory.size_model)
            nbytes += extent.nbytes
            largest = max(largest, extent.largest_layer)
        self._memory.record_usage(nbytes, largest)

    def growing(self) -> list[Batch]:
        """Groups whose caches the next step makes larger."""
        return [
            group for group in self._batches if group.grows_next_step(self._memory.size_model, self.lookahead)
        ]

    def release_drafts(self) -> bool:
        """Free the caches of a model that drafts, for the sake of memory; whether there were any."""
        if self._speculation is None or not self._draft_bytes:
            return False
        self._speculation.reset()
        self.record_memory()
        return True

    def compact(self) -> bool:
        """Cut out rows that have left, for the sake of memory; whether that was possible."""
        for group in self._batches:
            if 0 < group.active < len(group.sequences) and self._memory.reserve_temporary(
                self._memory.headroom
            ):
                group.compact(layerwise=True)
                self.record_memory()
                return True
        return False

    def preempt(self, row: Sequence) -> bool:
        """Forget a row that will begin anew; whether it was here."""
        found = any(group.preempt(row) for group in self._batches)
        self.remove_finished()
        return found

    def launch(self, alone: bool = False) -> None:
        """Start the forward pass of every group.

        Args:
            alone: Nothing else is computed beside.
        """
        speculation = self._speculation
        if speculation is not None and not (alone and self._is_single_sequence):
            speculation.pause()
            speculation = None
        for group in self._batches:
            group.launch(speculation)
        self._copied = sum(group.take_copied_bytes() for group in self._batches)
        verifies = any(group.is_verifying for group in self._batches)
        self._timer.on_launched([] if verifies else self.shapes, self._copied)

    def on_tokens_read(self) -> None:
        """Call when the tokens of the last step have arrived."""
        self._timer.on_tokens_read()

    def remove_finished(self) -> None:
        """Forget the groups in which nothing is left to compute or to read."""
        self._batches = [group for group in self._batches if not group.is_done]
        if not self._batches and self._speculation is not None:
            self._speculation.reset()

    def on_prefill_launched(self, pieces: GenericSequence[PrefillChunk]) -> None:
        """Tell what prefill was launched behind the step."""
        self._timer.on_prefill_launched(pieces)

    def close(self) -> None:
        """Forget all rows, and the model."""
        self._batches.clear()
        self._model = None
        self._speculation = None

    def _rearrange(self) -> None:
        """Move rows where the costs say that they had better be."""
        groups = [group for group in self._batches if group.active and group.batchable]
        per_pass = self._costs.padding_per_pass
        for group in groups:
            lengths = [row.length for row in group.sequences if row is not None]
            longest = self._policy.split(lengths, per_pass)
            if longest is not None and self._memory.reserve_temporary(2 * group.nbytes):
                self._batches.append(group.split(longest))
                return
        pair = self._policy.merge([group.shape for group in groups], per_pass)
        if pair is not None:
            one, other = (groups[index] for index in pair)
            rows, length = one.active + other.active, max(one.length, other.length)
            if self._memory.reserve_temporary(2 * self._memory.size_model.nbytes(rows, length + GROWTH_STEP)):
                one.merge(other)

    def _merge(self, group: Batch, joinings: list[PrefilledSequences]) -> None:
        """Put rows into a group if there is memory for the copy; else they decode beside it."""
        memory = self._memory
        rows = group.active + sum(len(joining.sequences) for joining in joinings)
        longest = max(group.length, *(row.length for joining in joinings for row in joining.sequences))
        joined = memory.size_model.nbytes(rows, longest + GROWTH_STEP)
        if memory.reserve_temporary(2 * joined):
            group.add(joinings)
            return
        held = group.nbytes + sum(caches.size_in_bytes(joining.cache) for joining in joinings)
        if memory.reserve_temporary(max(0, joined - held) + memory.headroom_for(joined)):
            group.add(joinings, layerwise=True)
            return
        self._batches += [Batch(self._model, joining) for joining in joinings]

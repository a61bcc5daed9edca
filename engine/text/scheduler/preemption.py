"""Preemption: releases caches of running sequences for the memory of the next step, or for other clients.

A sequence of the client with the most rows is preempted: its cache is released, and it resumes later from its
own tokens. A sequence that does not fit even alone ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from greenroom.engine.fairness.client_shares import Holdings
from greenroom.engine.text.memory.kv_memory import KvMemory
from greenroom.engine.text.scheduler.decoding.running_batches import RunningBatches
from greenroom.engine.text.scheduler.prefill.prefill_queue import PrefillQueue
from greenroom.engine.text.scheduler.waiting_queue import QueueEntry, WaitingQueue
from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.schemas.logs import get_logger

MAX_RESERVED_TOKENS = 1024
"""Most output tokens to reserve memory for in advance; few answers are longer."""

log = get_logger(__name__)


class Preemption:
    """Reserves the memory of each decode step, and preempts sequences if there is too little.

    Args:
        waiting: Queue of the requests that wait for memory.
        admitted: Entries of the sequences that run, by serial; shared with admission control.

    Attributes:
        max_reserved_tokens: Maximum number of output tokens to reserve memory for in advance.
        preempted: Number of preemptions.
        cut: Number of answers that ended because they did not fit even alone.
    """

    def __init__(
        self,
        memory: KvMemory,
        prefill: PrefillQueue,
        batches: RunningBatches,
        waiting: WaitingQueue,
        admitted: dict[int, QueueEntry],
    ) -> None:
        self.max_reserved_tokens = MAX_RESERVED_TOKENS
        self.preempted = self.cut = 0
        self._memory = memory
        self._prefill = prefill
        self._batches = batches
        self._waiting = waiting
        self._admitted = admitted

    def reserve_step(self) -> list[Sequence]:
        """Reserve the memory of the next step; return sequences that must end because they can never fit."""
        while growing := self._batches.growing():
            usages = [batch.growth.usage(self._memory.size_model) for batch in growing]
            if self._memory.reserve_temporary(sum(usage.copied for usage in usages)):
                break
            growth = sum(usage.growth for usage in usages)
            if self._memory.reserve_temporary_evicting(growth + max(usage.largest_layer for usage in usages)):
                for batch in growing:
                    batch.growth.grow(self._batches.lookahead)
                break
            batches = self._batches
            if batches.release_drafts() or batches.release_copies() or batches.compact():
                continue
            if ended := self._preempt_one():
                return ended
        return []

    def preempt(self, entry: QueueEntry) -> None:
        """Release a running sequence's cache; it is recomputed later."""
        sequence = entry.sequence
        prefilling = self._prefill.preempt(sequence)
        sequence.on_its_own = sequence.on_its_own or sequence.sampled > 0 or not prefilling
        self._batches.preempt(sequence)
        self._memory.release(sequence)
        del self._admitted[sequence.serial]
        self.enqueue(entry)
        self._batches.record_memory()
        self._batches.compact()

    def enqueue(self, entry: QueueEntry, *, counted: bool = True) -> None:
        """Queue a sequence to be recomputed later.

        Args:
            counted: True to count and log it as a preemption; False if it waits to spare copies.
        """
        sequence = entry.sequence
        entry.preempt(self.max_reserved_tokens)
        self._waiting.add(entry)
        if counted:
            self.preempted += 1
            sequence.metrics.preempt()
            log.info(
                "preempted", request_id=sequence.request_id, choice=sequence.index, tokens=sequence.generated
            )

    def _preempt_one(self) -> list[Sequence]:
        """Preempt a sequence, or stop the only one if it can never fit; return the sequences to end."""
        entry = first_to_preempt(self._admitted.values())
        sequence = entry.sequence
        alone = all(len(batch.sequences) == 1 for batch in self._batches)
        if len(self._admitted) > 1 or not alone or self._memory.share.others_running():
            self.preempt(entry)
            return []
        for batch in self._batches:
            batch.remove(sequence)  # awaits drafted tokens, so it must precede the count below
        self.cut += 1
        log.info("answer cut", request_id=sequence.request_id, tokens=sequence.sampled, reason="memory")
        sequence.max_tokens = sequence.sampled
        return [sequence] if sequence.sampled == sequence.generated else []


def held_rows(admitted: Iterable[QueueEntry]) -> Holdings:
    """Count the rows that each client's admitted sequences use."""
    return Holdings((entry.client, entry.choices) for entry in admitted)


def first_to_preempt(
    admitted: Collection[QueueEntry], size: Callable[[QueueEntry], int] = lambda entry: entry.choices
) -> QueueEntry:
    """Return the entry to preempt first.

    It belongs to the client with the most rows; among those, entries that outgrew their reservation come
    first, then the most recently started. So an answer can always use its full reservation.

    Args:
        size: Function that measures entries instead of their numbers of rows.
    """
    held = Holdings((entry.client, size(entry)) for entry in admitted)
    return max(admitted, key=lambda entry: (held.of(entry.client), entry.is_overdrawn, entry.sequence.serial))


def displaced_by(
    waiting: QueueEntry,
    admitted: Iterable[QueueEntry],
    missing: int,
    own: int,
    size: Callable[[QueueEntry], int] = lambda entry: entry.choices,
) -> list[QueueEntry]:
    """Return the entries to preempt for a waiting one; none if its client would then hold more than theirs.

    Args:
        missing: Rows or bytes that it lacks.
        own: Rows or bytes that it is to have.
        size: Function that returns the rows or bytes of an admitted entry.
    """
    staying, displaced = list(admitted), list[QueueEntry]()
    while missing > 0:
        if not staying:
            return []
        richest = first_to_preempt(staying, size)
        held = Holdings((entry.client, size(entry)) for entry in staying)
        if held.lead(richest.client, waiting.client) < size(richest) + own:
            return []
        staying.remove(richest)
        displaced.append(richest)
        missing -= size(richest)
    return displaced

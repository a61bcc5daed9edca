"""Who computes and who waits, so that no cache ever exceeds the account.

What gives way, in this order: the prefix cache, then requests that wait, then the youngest row. It is
stopped, its cache is dropped, and later it goes on from its own tokens. A row that does not fit even alone
ends.
"""

from __future__ import annotations

from typing import Any

import attrs
import structlog

from greenroom.engine.batch.parallel_samples import parallel_samples_of, with_parallel_samples
from greenroom.engine.kv_cache import caches
from greenroom.engine.memory.kv_memory import KvMemory
from greenroom.engine.scheduler.prefill_queue import PrefillQueue
from greenroom.engine.scheduler.running_batches import RunningBatches
from greenroom.engine.scheduler.waiting_queue import QueueEntry, WaitingQueue
from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.statistics import AdmissionStatistics

MAX_RESERVED_TOKENS = 1024
"""Tokens of an answer for which room is reserved at most; few answers are longer."""

MAX_CHUNK_TOKENS = 2048
"""Tokens of a prompt that are computed at once at most."""

_POLL_SECONDS = 0.02
"""Seconds between two looks at the account while only other models' rows run."""

log = structlog.get_logger(__name__)


class Admission:
    """Lets requests into prefill and rows into the batch as far as there is memory for them.

    Args:
        memory: What this model's caches take.

    Attributes:
        max_reserved_tokens: Tokens of an answer for which room is reserved at most.
    """

    def __init__(self, memory: KvMemory, prefill: PrefillQueue, groups: RunningBatches) -> None:
        self._preempted = self._resumed = self._cut = 0
        self.max_reserved_tokens = MAX_RESERVED_TOKENS
        self._memory = memory
        self._prefill = prefill
        self._batches = groups
        self._waiting = WaitingQueue()
        self._admitted: dict[int, QueueEntry] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def statistics(self) -> AdmissionStatistics:
        """Return what lack of memory has cost so far."""
        return AdmissionStatistics(self._preempted, self._resumed, self._cut)

    def add(self, sequence: Sequence, embeddings: Any, client: str, conversation: str) -> None:
        """Take on a request.

        Raises:
            ProblemError: 400: its prompt does not fit into the account even alone.
        """
        if not self._fits_alone(sequence):
            raise ProblemError(self.prompt_too_long(sequence))
        for choice in (sequence, *sequence.parallel_samples):
            choice.serial = self._serial = self._serial + 1
        tokens = len(sequence.prompt) + min(sequence.max_tokens, self.max_reserved_tokens)
        self._waiting.add(
            QueueEntry(sequence, embeddings, client, conversation, tokens, 1 + len(sequence.parallel_samples))
        )

    def prompt_too_long(self, sequence: Sequence) -> Problem:
        """Why a prompt can never be computed."""
        room = (self._memory.share.capacity() or 0) >> 20
        detail = (
            f"The prompt has {len(sequence.prompt)} tokens, more than fit into the memory for running "
            f"requests ({room} MB; kv_cache_bytes, memory_bytes). Please reduce the length of the messages."
        )
        return Problem(400, "context_length_exceeded", detail, "messages")

    def remove(self, sequence: Sequence) -> None:
        """A row has ended, wherever it stands."""
        self._admitted.pop(sequence.serial, None)
        self._memory.release(sequence)
        if len(self._waiting):
            self._waiting.remove(sequence)

    def admit_waiting(self) -> list[Sequence]:
        """Let those who wait begin, as far as there is room; returns rows for which there never will be."""
        if not len(self._waiting):
            return []
        hopeless: list[Sequence] = []
        reserved = sum(map(self._bytes_of, self._admitted.values()))
        scarce = not self._fits(reserved + sum(map(self._bytes_of, self._waiting)))
        while (seat := self._waiting.peek(fair=scarce)) is not None:
            wanted = reserved + self._bytes_of(seat)
            if self._admit(seat, wanted):
                reserved = wanted
            elif not self._admitted and not self._fits_alone(seat.sequence):
                self._waiting.remove(seat.sequence)
                hopeless.append(seat.sequence)
            else:
                return hopeless
        self._memory.share.cancel_reservation()
        return hopeless

    def start_decoding(self) -> None:
        """Let rows decode whose prompts are computed."""
        ready = self._prefill.pop_prefilled()
        if not ready:
            return
        for joining in ready:
            for row in joining.sequences:
                self._reserve_parallel_samples(
                    row, caches.size_in_bytes(joining.cache) // len(joining.sequences)
                )
        rows = [row for joining in ready for row in joining.sequences]
        self._batches.add(with_parallel_samples(ready))
        for row in rows:
            self._memory.release(row)
        self._batches.record_memory()

    def reserve_step(self) -> list[Sequence]:
        """See to it that the next step fits; returns rows that have to end now because it never would."""
        while growing := self._batches.growing():
            extents = [group.cache_usage(self._memory.size_model) for group in growing]
            if self._memory.reserve_temporary(sum(extent.copied for extent in extents)):
                break
            growth = sum(extent.growth for extent in extents)
            if self._memory.reserve_temporary_evicting(
                growth + max(extent.largest_layer for extent in extents)
            ):
                for group in growing:
                    group.grow(self._batches.lookahead)
                break
            if self._batches.release_drafts() or self._batches.compact():
                continue
            if cut := self._preempt_youngest():
                return cut
        return []

    def _bytes_of(self, seat: QueueEntry) -> int:
        tokens = max(seat.tokens, seat.sequence.length + 1)
        return seat.choices * self._memory.size_model.nbytes(1, tokens)

    def _fits(self, nbytes: int) -> bool:
        """Whether there is room for so many bytes of running caches, and to copy a layer of them."""
        room = self._memory.share.available_for_running()
        return room is None or nbytes * (1 + self._memory.size_model.largest_layer_share) <= room

    def _admit(self, seat: QueueEntry, wanted: int) -> bool:
        row, memory = seat.sequence, self._memory
        if self._admitted and not self._fits(wanted):
            return False
        promised = (row, len(row.prefill_tokens) + 1, min(len(row.prefill_tokens), MAX_CHUNK_TOKENS))
        if not (memory.reserve(*promised) or (self._batches.release_drafts() and memory.reserve(*promised))):
            if not self._admitted:
                memory.share.reserve(memory.size_model.nbytes(1, seat.tokens))
                memory.share.wait_for_change(_POLL_SECONDS)
            return False
        self._waiting.pop(seat)
        self._admitted[row.serial] = seat
        if row.preempted:
            self._resumed += 1
            log.info("resumed", request_id=row.request_id, tokens=row.generated)
        self._prefill.add(row, seat.embeddings, seat.client, seat.conversation)
        return True

    def _reserve_parallel_samples(self, row: Sequence, nbytes: int) -> None:
        """Those further choices of a request that do not fit beside it begin on their own, later."""
        twins = parallel_samples_of(row)
        if not twins:
            return
        seat = self._admitted[row.serial]
        seat.choices = 1
        fits = self._memory.reserve_temporary_evicting((len(twins) + 2) * nbytes)
        for twin in twins:
            mine = attrs.evolve(seat, sequence=twin)
            if fits:
                self._admitted[twin.serial] = mine
            else:
                twin.on_its_own = True
                twin.metrics.started_at = row.metrics.started_at
                self._preempt(mine)

    def _preempt_youngest(self) -> list[Sequence]:
        """Stop the youngest row, or end the only one if it would never fit; returns a row to end."""
        seat = self._admitted[max(self._admitted)]
        row = seat.sequence
        if len(self._admitted) > 1 or self._memory.share.others_running():
            row.on_its_own = row.on_its_own or row.sampled > 0 or not self._prefill.preempt(row)
            self._batches.preempt(row)
            self._memory.release(row)
            del self._admitted[row.serial]
            self._preempt(seat)
            if not self._batches.compact():
                self._batches.record_memory()
            return []
        for group in self._batches:
            group.remove(row)  # which waits for drafts, so it comes first
        self._cut += 1
        log.info("answer cut", request_id=row.request_id, tokens=row.sampled, reason="memory")
        row.max_tokens = row.sampled
        return [row] if row.sampled == row.generated else []

    def _preempt(self, seat: QueueEntry) -> None:
        row = seat.sequence
        row.preempt()
        seat.tokens = len(row.prefill_tokens) + min(row.max_tokens - row.generated, self.max_reserved_tokens)
        self._preempted += 1
        log.info("preempted", request_id=row.request_id, choice=row.index, tokens=row.generated)
        self._waiting.add(seat)

    def _fits_alone(self, row: Sequence) -> bool:
        room = self._memory.share.capacity()
        if room is None:
            return True
        footprint = self._memory.size_model
        tokens = len(row.prefill_tokens) + 1
        nbytes = footprint.nbytes(1, tokens, min(tokens, MAX_CHUNK_TOKENS))
        return nbytes * (1 + footprint.largest_layer_share) <= room

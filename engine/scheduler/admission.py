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

MOST_RESERVED = 1024
"""Tokens of an answer for which room is reserved at most; few answers are longer."""

MOST_SLICED = 2048
"""Tokens of a prompt that are computed at once at most."""

_PAUSE = 0.02
"""Seconds between two looks at the account while only other models' rows run."""

log = structlog.get_logger(__name__)


class Admission:
    """Lets requests into prefill and rows into the batch as far as there is memory for them.

    Args:
        memory: What this model's caches take.

    Attributes:
        most_reserved: Tokens of an answer for which room is reserved at most.
    """

    def __init__(self, memory: KvMemory, prefill: PrefillQueue, groups: RunningBatches) -> None:
        self._preempted = self._resumed = self._cut = 0
        self.most_reserved = MOST_RESERVED
        self._memory = memory
        self._prefill = prefill
        self._groups = groups
        self._waiting = WaitingQueue()
        self._seats: dict[int, QueueEntry] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def statistics(self) -> AdmissionStatistics:
        """Return what lack of memory has cost so far."""
        return AdmissionStatistics(self._preempted, self._resumed, self._cut)

    def add(self, row: Sequence, embeddings: Any, client: str, conversation: str) -> None:
        """Take on a request.

        Raises:
            ProblemError: 400: its prompt does not fit into the account even alone.
        """
        if not self._fits_alone(row):
            raise ProblemError(self.too_long(row))
        for choice in (row, *row.parallel_samples):
            choice.serial = self._serial = self._serial + 1
        tokens = len(row.prompt) + min(row.max_tokens, self.most_reserved)
        self._waiting.add(
            QueueEntry(row, embeddings, client, conversation, tokens, 1 + len(row.parallel_samples))
        )

    def too_long(self, row: Sequence) -> Problem:
        """Why a prompt can never be computed."""
        room = (self._memory.share.room_alone() or 0) >> 20
        detail = (
            f"The prompt has {len(row.prompt)} tokens, more than fit into the memory for running requests "
            f"({room} MB; kv_cache_bytes, memory_bytes). Please reduce the length of the messages."
        )
        return Problem(400, "context_length_exceeded", detail, "messages")

    def leave(self, row: Sequence) -> None:
        """A row has ended, wherever it stands."""
        self._seats.pop(row.serial, None)
        self._memory.release(row)
        if len(self._waiting):
            self._waiting.leave(row)

    def begin(self) -> list[Sequence]:
        """Let those who wait begin, as far as there is room; returns rows for which there never will be."""
        if not len(self._waiting):
            return []
        hopeless: list[Sequence] = []
        reserved = sum(map(self._reserved, self._seats.values()))
        scarce = not self._fits(reserved + sum(map(self._reserved, self._waiting)))
        while (seat := self._waiting.first(fairly=scarce)) is not None:
            wanted = reserved + self._reserved(seat)
            if self._begin(seat, wanted):
                reserved = wanted
            elif not self._seats and not self._fits_alone(seat.row):
                self._waiting.leave(seat.row)
                hopeless.append(seat.row)
            else:
                return hopeless
        self._memory.share.leave_line()
        return hopeless

    def join(self) -> None:
        """Let rows decode whose prompts are computed."""
        ready = self._prefill.take_ready()
        if not ready:
            return
        for joining in ready:
            for row in joining.rows:
                self._make_room_for_twins(row, caches.size_in_bytes(joining.cache) // len(joining.rows))
        rows = [row for joining in ready for row in joining.rows]
        self._groups.admit(with_parallel_samples(ready))
        for row in rows:
            self._memory.release(row)
        self._groups.settle()

    def make_room(self) -> list[Sequence]:
        """See to it that the next step fits; returns rows that have to end now because it never would."""
        while growing := self._groups.growing():
            extents = [group.extent(self._memory.footprint) for group in growing]
            if self._memory.lend(sum(extent.copied for extent in extents)):
                break
            growth = sum(extent.growth for extent in extents)
            if self._memory.lend_first(growth + max(extent.largest_layer for extent in extents)):
                for group in growing:
                    group.grow(self._groups.ahead)
                break
            if self._groups.forget_drafts() or self._groups.compact():
                continue
            if cut := self._stop_youngest():
                return cut
        return []

    def _reserved(self, seat: QueueEntry) -> int:
        tokens = max(seat.tokens, seat.row.length + 1)
        return seat.choices * self._memory.footprint.nbytes(1, tokens)

    def _fits(self, nbytes: int) -> bool:
        """Whether there is room for so many bytes of running caches, and to copy a layer of them."""
        room = self._memory.share.room_for_running()
        return room is None or nbytes * (1 + self._memory.footprint.largest_layer_share) <= room

    def _begin(self, seat: QueueEntry, wanted: int) -> bool:
        row, memory = seat.row, self._memory
        if self._seats and not self._fits(wanted):
            return False
        promised = (row, len(row.inputs) + 1, min(len(row.inputs), MOST_SLICED))
        if not (memory.promise(*promised) or (self._groups.forget_drafts() and memory.promise(*promised))):
            if not self._seats:
                memory.share.stand_in_line(memory.footprint.nbytes(1, seat.tokens))
                memory.share.wait(_PAUSE)
            return False
        self._waiting.admit(seat)
        self._seats[row.serial] = seat
        if row.preempted:
            self._resumed += 1
            log.info("resumed", request_id=row.request_id, tokens=row.generated)
        self._prefill.add(row, seat.embeddings, seat.client, seat.conversation)
        return True

    def _make_room_for_twins(self, row: Sequence, nbytes: int) -> None:
        """Those further choices of a request that do not fit beside it begin on their own, later."""
        twins = parallel_samples_of(row)
        if not twins:
            return
        seat = self._seats[row.serial]
        seat.choices = 1
        fits = self._memory.lend_first((len(twins) + 2) * nbytes)
        for twin in twins:
            mine = attrs.evolve(seat, row=twin)
            if fits:
                self._seats[twin.serial] = mine
            else:
                twin.on_its_own = True
                twin.started = row.started
                self._stop(mine)

    def _stop_youngest(self) -> list[Sequence]:
        """Stop the youngest row, or end the only one if it would never fit; returns a row to end."""
        seat = self._seats[max(self._seats)]
        row = seat.row
        if len(self._seats) > 1 or self._memory.share.others_run():
            row.on_its_own = row.on_its_own or row.sampled > 0 or not self._prefill.withdraw(row)
            self._groups.drop(row)
            self._memory.release(row)
            del self._seats[row.serial]
            self._stop(seat)
            if not self._groups.compact():
                self._groups.settle()
            return []
        for group in self._groups:
            group.leave(row)  # which waits for drafts, so it comes first
        self._cut += 1
        log.info("answer cut", request_id=row.request_id, tokens=row.sampled, reason="memory")
        row.max_tokens = row.sampled
        return [row] if row.sampled == row.generated else []

    def _stop(self, seat: QueueEntry) -> None:
        row = seat.row
        row.preempt()
        seat.tokens = len(row.inputs) + min(row.max_tokens - row.generated, self.most_reserved)
        self._preempted += 1
        log.info("preempted", request_id=row.request_id, choice=row.index, tokens=row.generated)
        self._waiting.add(seat)

    def _fits_alone(self, row: Sequence) -> bool:
        room = self._memory.share.room_alone()
        if room is None:
            return True
        footprint = self._memory.footprint
        tokens = len(row.inputs) + 1
        nbytes = footprint.nbytes(1, tokens, min(tokens, MOST_SLICED))
        return nbytes * (1 + footprint.largest_layer_share) <= room

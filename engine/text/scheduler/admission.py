"""Admission control: decides which sequences run and which wait, so that KV caches stay within the budget.

If memory runs out, cached prefixes are evicted first, then waiting requests are held back, and then a running
sequence is preempted (`Preemption`).
"""

from __future__ import annotations

import sys
from functools import partial

import attrs

from greenroom.engine.text.batch.parallel_samples import parallel_samples_of, with_parallel_samples
from greenroom.engine.text.memory.kv_memory import KvMemory
from greenroom.engine.text.scheduler.decoding.running_batches import RunningBatches
from greenroom.engine.text.scheduler.preemption import Preemption, held_rows
from greenroom.engine.text.scheduler.prefill.prefill_queue import PrefillQueue
from greenroom.engine.text.scheduler.waiting_queue import QueueEntry, WaitingQueue
from greenroom.engine.text.sequences.failures import SequenceFailures
from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.schemas.events.statistics import AdmissionStatistics
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError

MAX_CHUNK_TOKENS = 2048
"""Most prompt tokens in one prefill chunk."""

_POLL_SECONDS = 0.02
"""Seconds between two checks for free memory while only other models' sequences run."""

log = get_logger(__name__)


class Admission:
    """Admits requests to prefill, and prefilled sequences to batches, as far as memory allows.

    Args:
        max_rows: Maximum number of sequences that run at once.

    Attributes:
        preemption: Reserves the memory of the next decode step, and preempts sequences if it is short.
    """

    def __init__(
        self, memory: KvMemory, prefill: PrefillQueue, batches: RunningBatches, max_rows: int = sys.maxsize
    ) -> None:
        self._serial = self._resumed = 0
        self._max_rows = max_rows
        self._memory = memory
        self._prefill = prefill
        self._batches = batches
        self._waiting = WaitingQueue()
        self._admitted: dict[int, QueueEntry] = {}
        self.preemption = Preemption(memory, prefill, batches, self._waiting, self._admitted)

    def __len__(self) -> int:
        return len(self._waiting)

    def statistics(self) -> AdmissionStatistics:
        """Return counts of preempted, resumed and cut sequences."""
        return AdmissionStatistics(self.preemption.preempted, self._resumed, self.preemption.cut)

    def add(self, sequence: Sequence, client: str, conversation: str) -> None:
        """Queue a request; parallel samples beyond the row limit get queue entries of their own.

        Raises:
            ProblemError: 400 if the prompt does not fit into memory even alone.
        """
        if not _fits_alone(sequence, self._memory):
            raise ProblemError(self.prompt_too_long(sequence))
        choices = (sequence, *sequence.parallel_samples)
        tokens = len(sequence.prompt) + min(sequence.max_tokens, self.preemption.max_reserved_tokens)
        together = min(len(choices), self._max_rows)
        self._waiting.add(QueueEntry(sequence, client, conversation, tokens, together))
        for choice in choices[together:]:
            choice.on_its_own = True
            self._waiting.add(QueueEntry(choice, client, conversation, tokens))

    def prompt_too_long(self, sequence: Sequence) -> Problem:
        """Return the problem for a prompt that can never fit into memory."""
        return _prompt_too_long(sequence, self._memory.share.capacity() or 0)

    def remove(self, sequence: Sequence) -> None:
        """Remove a finished or cancelled sequence and release its memory."""
        self._admitted.pop(sequence.serial, None)
        self._memory.release(sequence)
        self._waiting.remove(sequence)
        if not len(self._waiting):
            self._memory.share.cancel_reservation()

    def admit_waiting(self) -> list[Sequence]:
        """Move waiting requests into prefill as rows and memory allow; return those that can never fit."""
        if not len(self._waiting):
            return []
        impossible: list[Sequence] = []
        reserved = sum(map(self._bytes_of, self._admitted.values()))
        rows = sum(entry.choices for entry in self._admitted.values())
        wanted_rows = rows + sum(entry.choices for entry in self._waiting)
        fits = self._fits(reserved + sum(map(self._bytes_of, self._waiting)))
        scarce = wanted_rows > self._max_rows or not fits
        while entry := self._waiting.peek(held_rows(self._admitted.values()) if scarce else None):
            if rows + entry.choices > self._max_rows:
                break
            wanted = reserved + self._bytes_of(entry)
            if self._admit(entry, wanted):
                reserved, rows = wanted, rows + entry.choices
            elif not self._admitted and not _fits_alone(entry.sequence, self._memory):
                self._waiting.remove(entry.sequence)
                impossible.append(entry.sequence)
            else:
                return impossible
        self._memory.share.cancel_reservation()
        return impossible

    def start_decoding(self) -> SequenceFailures:
        """Add prefilled sequences to batches; return those that cannot be added."""
        if not (arrivals := self._prefill.pop_prefilled()):
            return []
        for prefilled in arrivals:
            for sequence in prefilled.sequences:
                self._reserve_parallel_samples(sequence, prefilled.row_bytes)
        sequences = [sequence for prefilled in arrivals for sequence in prefilled.sequences]
        for sequence in sequences:
            sequence.metrics.resume()
        ready, failures = with_parallel_samples(arrivals)
        failures += self._batches.add(ready)
        for sequence in sequences:
            self._memory.release(sequence)
        self._batches.record_memory()
        return failures

    def _bytes_of(self, entry: QueueEntry) -> int:
        """Return the bytes of KV cache reserved for an entry's sequences."""
        tokens = max(entry.tokens, entry.sequence.length + 1)
        return entry.choices * self._memory.size_model.nbytes(1, tokens)

    def _fits(self, nbytes: int) -> bool:
        """Return whether running caches of `nbytes`, plus a copy of their largest layer, fit."""
        available = self._memory.share.available_for_running()
        return available is None or nbytes * (1 + self._memory.size_model.largest_layer_share) <= available

    def _admit(self, entry: QueueEntry, wanted: int) -> bool:
        sequence, memory = entry.sequence, self._memory
        if self._admitted and not self._fits(wanted):
            return False
        if not sequence.preempted:
            for choice in (sequence, *parallel_samples_of(sequence)):
                choice.serial = self._serial = self._serial + 1
        tokens = len(sequence.prefill_tokens)
        reserve = partial(memory.reserve, sequence, tokens + 1, min(tokens, MAX_CHUNK_TOKENS))
        if not (reserve() or (self._batches.release_drafts() and reserve())):
            if not self._admitted:
                memory.share.reserve(memory.size_model.nbytes(1, entry.tokens))
                memory.share.wait_for_change(_POLL_SECONDS)
            return False
        self._waiting.pop(entry)
        sequence.metrics.admit()
        self._admitted[sequence.serial] = entry
        if sequence.preempted:
            self._resumed += 1
            log.info("resumed", request_id=sequence.request_id, tokens=sequence.generated)
        self._prefill.add(sequence, entry.client, entry.conversation)
        return True

    def _reserve_parallel_samples(self, sequence: Sequence, nbytes: int) -> None:
        """Reserve memory for a request's other parallel samples; those that do not fit start later, alone.

        So do samples whose cache copies would stall running streams; they restore the prompt from the prefix
        cache in bounded steps instead of copying it.
        """
        samples = parallel_samples_of(sequence)
        if not samples:
            return
        entry = self._admitted[sequence.serial]
        entry.choices = 1
        is_short = self._batches.copies.is_short((len(samples) + 1) * nbytes)
        together = is_short or not self._prefill.prefix_cache.has_most_of(sequence)
        fits = together and self._memory.reserve_temporary_evicting((len(samples) + 2) * nbytes)
        for sample in samples:
            own_entry = attrs.evolve(entry, sequence=sample)
            if fits:
                self._admitted[sample.serial] = own_entry
            else:
                sample.on_its_own = True
                sample.metrics.started_at = sequence.metrics.started_at
                self.preemption.enqueue(own_entry, for_memory=together)


def _prompt_too_long(sequence: Sequence, capacity: int) -> Problem:
    images = sequence.features is not None and sequence.features.image_tokens > 0
    what = ", which with its images is more than fits" if images else ", more than fit"
    advice = "show fewer or smaller images, or " if images else ""
    detail = (
        f"The prompt has {len(sequence.prompt)} tokens{what} into the memory for running "
        f"requests ({capacity >> 20} MB; kv_cache_bytes, memory_bytes). "
        f"Please {advice}reduce the length of the messages."
    )
    return Problem(400, "context_length_exceeded", detail, "messages")


def _fits_alone(sequence: Sequence, memory: KvMemory) -> bool:
    capacity, size_model = memory.share.capacity(), memory.size_model
    if capacity is None:
        return True
    tokens = len(sequence.prefill_tokens) + 1
    nbytes = size_model.nbytes(1, memory.prompt_room(tokens), min(tokens, MAX_CHUNK_TOKENS))
    nbytes += sequence.features.nbytes if sequence.features is not None else 0
    return nbytes * (1 + size_model.largest_layer_share) <= capacity

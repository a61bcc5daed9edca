"""Admission control: which sequences run, wait, or make way, so that KV caches stay within the budget.

If memory runs out, cached prefixes are evicted first, then waiting requests are held back, and then a running
sequence is preempted (`Preemption`). So is one of the client that holds the most, if another waits that holds
less: whoever is alone may use everything, and shares it once others come.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import chain

import attrs

from greenroom.engine.resources.fair_queue import FairQueue, Holdings
from greenroom.engine.text.kv_memory import KvMemory
from greenroom.engine.text.parallel_samples import parallel_samples_of, with_parallel_samples
from greenroom.engine.text.scheduler.prefill_queue import PrefillQueue
from greenroom.engine.text.scheduler.running_batches import RunningBatches
from greenroom.engine.text.sequence import Sequence, SequenceFailures
from greenroom.schemas.events.statistics import AdmissionStatistics
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError

MAX_CHUNK_TOKENS = 2048  # Most prompt tokens in one prefill chunk

MAX_PASSED = 16
"""Entries that may pass one that does not fit into memory; then it is next, so that it does not starve."""

_POLL_SECONDS = 0.02  # Seconds between two checks for free memory while only other models' sequences run

log = get_logger(__name__)


class Admission:
    """Admits requests to prefill, and prefilled sequences to batches, as far as memory allows.

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
        return AdmissionStatistics(self.preemption.preempted, self._resumed, self.preemption.cut)

    def add(self, sequence: Sequence, client: str, conversation: str) -> None:
        """Queue a request. Raises ProblemError (400): the prompt does not fit into memory even alone."""
        if not _fits_alone(sequence, self._memory):
            raise ProblemError(self.prompt_too_long(sequence))
        tokens = len(sequence.prompt) + min(sequence.max_tokens, self.preemption.max_reserved_tokens)
        choices = 1 + len(sequence.parallel_samples)
        self._waiting.add(QueueEntry(sequence, client, conversation, tokens, choices))

    def prompt_too_long(self, sequence: Sequence) -> Problem:
        images = sequence.features is not None and sequence.features.image_tokens > 0
        what = ", which with its images is more than fits" if images else ", more than fit"
        advice = "show fewer or smaller images, or " if images else ""
        capacity = self._memory.share.capacity() or 0
        detail = (
            f"The prompt has {len(sequence.prompt)} tokens{what} into the memory for running "
            f"requests ({capacity >> 20} MB; kv_cache_bytes, memory_bytes). "
            f"Please {advice}reduce the length of the messages."
        )
        return Problem(400, "context_length_exceeded", detail, "messages")

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
        passed: list[QueueEntry] = []
        reserved, rows = self._held()
        wanted_rows = rows + sum(entry.choices for entry in self._waiting)
        fits = not self._lacking(reserved + sum(map(self._bytes_of, self._waiting)))
        scarce = wanted_rows > self._max_rows or not fits
        while entry := self._waiting.peek(self._held_rows() if scarce else None, passed):
            if scarce:
                if self._make_way(entry, reserved, rows):
                    reserved, rows = self._held()
                if rows >= self._max_rows:
                    break
                self._split(entry, reserved, rows)
                if self._admitted and self._lacking(reserved + self._bytes_of(entry)):
                    passed.append(entry)
                    if entry.passed >= MAX_PASSED:
                        return impossible
                    continue
            if self._admit(entry):
                reserved, rows = reserved + self._bytes_of(entry), rows + entry.choices
                for earlier in passed:
                    earlier.passed += 1
            elif not self._admitted and not _fits_alone(entry.sequence, self._memory):
                self._waiting.remove(entry.sequence)
                impossible.append(entry.sequence)
            else:
                return impossible
        if not passed:
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
        tokens = max(entry.tokens, entry.sequence.length + 1)
        return entry.choices * self._memory.size_model.nbytes(1, tokens)

    def _held(self) -> tuple[int, int]:
        """Return the reserved bytes and the rows of all admitted entries."""
        admitted = self._admitted.values()
        return sum(map(self._bytes_of, admitted)), sum(entry.choices for entry in admitted)

    def _held_rows(self) -> Holdings:
        return Holdings((entry.client, entry.choices) for entry in self._admitted.values())

    def _lacking(self, nbytes: int) -> int:
        """Return the bytes missing for running caches of `nbytes`, plus a copy of their largest layer."""
        available = self._memory.share.available_for_running()
        if available is None:
            return 0
        return max(0, math.ceil(nbytes - available / (1 + self._memory.size_model.largest_layer_share)))

    def _make_way(self, entry: QueueEntry, reserved: int, rows: int) -> bool:
        """Preempt sequences of clients that hold more than the entry's, if it lacks a row or memory."""
        first = self._bytes_of(entry) // entry.choices
        admitted = self._admitted.values()
        displaced = displaced_by(entry, admitted, rows + 1 - self._max_rows, 1)
        left = reserved - sum(map(self._bytes_of, displaced))
        if self._lacking(left + first):
            staying = [each for each in admitted if each not in displaced]
            others = displaced_by(entry, staying, self._lacking(left + first), first, self._bytes_of)
            if not others:  # preempting for its row alone would be in vain
                return False
            displaced += others
        for each in displaced:
            self.preemption.preempt(each)
        return bool(displaced)

    def _split(self, entry: QueueEntry, reserved: int, rows: int) -> None:
        """Let those of an entry's parallel samples begin on their own for which there is no room now."""
        first, room = self._bytes_of(entry) // entry.choices, min(entry.choices, self._max_rows - rows)
        together = next((few for few in range(room, 1, -1) if not self._lacking(reserved + few * first)), 1)
        for choice in parallel_samples_of(entry.sequence)[together - 1 :]:
            choice.on_its_own = True
            self._waiting.add(QueueEntry(choice, entry.client, entry.conversation, entry.tokens))
        entry.choices = together

    def _admit(self, entry: QueueEntry) -> bool:
        sequence, memory = entry.sequence, self._memory
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
                self.preemption.enqueue(own_entry, counted=together)


def _fits_alone(sequence: Sequence, memory: KvMemory) -> bool:
    capacity, size_model = memory.share.capacity(), memory.size_model
    if capacity is None:
        return True
    tokens = len(sequence.prefill_tokens) + 1
    nbytes = size_model.nbytes(1, memory.prompt_room(tokens), min(tokens, MAX_CHUNK_TOKENS))
    nbytes += sequence.features.nbytes if sequence.features is not None else 0
    return nbytes * (1 + size_model.largest_layer_share) <= capacity


# Preemption: releases caches of running sequences for the memory of the next step, or for other clients.
#
# A sequence of the client with the most rows is preempted: its cache is released, and it resumes later from
# its own tokens. A sequence that does not fit even alone ends.

MAX_RESERVED_TOKENS = 1024  # Most output tokens to reserve memory for in advance; few answers are longer


class Preemption:
    """Reserves the memory of each decode step, and preempts sequences if there is too little.

    Args:
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
        """Queue a sequence to be recomputed later. `counted`: True to count and log it as a preemption; False
        if it waits to spare copies.
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


@attrs.define(eq=False)
class QueueEntry:
    """A sequence's entry in the waiting queue, kept while the sequence runs.

    Args:
        tokens: Tokens per choice for which memory is reserved while it runs.
        passed: Number of entries that have passed it since they fit into memory and it did not.
    """

    sequence: Sequence
    client: str = ""
    conversation: str = ""
    tokens: int = 0
    choices: int = 1
    passed: int = 0

    @property
    def is_overdrawn(self) -> bool:
        """True once the sequence has outgrown its reserved tokens."""
        return self.sequence.length > self.tokens

    def preempt(self, max_reserved_tokens: int) -> None:
        """Preempt the sequence; it is later recomputed from its prompt and the tokens generated so far."""
        sequence = self.sequence
        sequence.preempt()
        rest = min(sequence.max_tokens - sequence.generated, max_reserved_tokens)
        self.tokens = len(sequence.prefill_tokens) + rest


class WaitingQueue:
    """Waiting requests: those of the client that holds the fewest rows are first.

    Among these, preempted sequences resume first, the oldest before the others, then clients and
    conversations take turns.
    """

    def __init__(self) -> None:
        self._preempted: list[QueueEntry] = []
        self._new: FairQueue[QueueEntry] = FairQueue(
            remaining=lambda entry: len(entry.sequence.prefill_tokens),
            conversation=lambda entry: entry.conversation,
        )

    def __len__(self) -> int:
        return len(self._preempted) + len(self._new)

    def add(self, entry: QueueEntry) -> None:
        if entry.sequence.preempted:
            self._preempted.append(entry)
            self._preempted.sort(key=lambda preempted: preempted.sequence.serial)
        else:
            self._new.add(entry)

    def __iter__(self) -> Iterator[QueueEntry]:
        return chain(self._preempted, self._new)

    def peek(self, held: Holdings | None = None, passed: Collection[QueueEntry] = ()) -> QueueEntry | None:
        """Return the next entry. `held`: rows that each client holds; None if all waiting entries fit, so
        that the order does not matter.
        """
        waiting = [entry for entry in self if entry not in passed]
        if held is None or not waiting:
            return next(iter(waiting), None)
        fewest = min(held.of(entry.client) for entry in waiting)
        first = [entry for entry in waiting if held.of(entry.client) == fewest]
        resumed = next((entry for entry in first if entry.sequence.preempted), None)
        return resumed or self._new.choose(first)

    def pop(self, entry: QueueEntry) -> None:
        if entry in self._preempted:
            self._preempted.remove(entry)
        else:
            self._new.charge([entry], entry.tokens * entry.choices)
            self._new.remove(entry)

    def remove(self, sequence: Sequence) -> None:
        self._preempted = [entry for entry in self._preempted if entry.sequence is not sequence]
        for entry in [entry for entry in self._new if entry.sequence is sequence]:
            self._new.remove(entry)


def conversation_key(request: InferenceRequest) -> str:
    """Return the key of the request's conversation; empty if the request has no user message.

    No protocol identifies conversations, but every turn repeats the first user message.
    """
    if not isinstance(request.input, ChatInput):
        return ""
    opening = next((message for message in request.input.messages if message.role == "user"), None)
    return f"{hash(opening.content):x}" if opening is not None else ""

"""The queue of rows: batches rows of similar length from all requests, fairly between clients."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace

import attrs

from greenroom.engine.encoding.rows import PreparedRows, Row
from greenroom.engine.fairness.fair_queue import FairQueue
from greenroom.schemas.events.events import Timing
from greenroom.schemas.messages.requests import InferenceRequest

MAX_ROWS = 1024
"""Limit of rows per forward pass."""
MAX_PADDING = 0.1
"""Largest share of padding in a pass."""


class Job:
    """A request whose rows are being computed.

    Attributes:
        lengths: Number of tokens of each row, without the shared prefix if that is computed separately.
        apart: Number of prefix tokens of all rows that are computed separately (`SharedPrefixes`).
        setbacks: Number of times the prefix was lost or found no memory.
        waiting: Indexes of the pending rows, the shortest first.
        tokens_left: Number of tokens in pending rows.
        tokens_done: Number of tokens in computed rows.
        unanswered: Number of rows not computed yet.
    """

    def __init__(self, request: InferenceRequest, prepared: PreparedRows) -> None:
        self.request, self.client = request, request.client
        self.prepared = prepared
        self.lengths = [len(row.tokens) for row in prepared.rows]
        self.waiting = sorted(range(len(self.lengths)), key=self.lengths.__getitem__)
        self.unanswered = len(self.lengths)
        self.tokens_left = sum(self.lengths)
        self.tokens_done = 0
        self.apart = self.setbacks = 0
        self._submitted = time.perf_counter()
        self._begun: float | None = None

    @property
    def timing(self) -> Timing:
        """The request's waiting time until its first pass, and its time since."""
        now = time.perf_counter()
        begun = now if self._begun is None else self._begun
        return Timing(queued=begun - self._submitted, prefill=now - begun)

    @property
    def is_begun(self) -> bool:
        """True if a pass with part of the request has started."""
        return self._begun is not None

    def begin(self) -> None:
        """Record the start of the first pass."""
        if self._begun is None:
            self._begun = time.perf_counter()

    def close(self) -> None:
        """Close the job: nothing to release, since it holds only token ids."""

    def set_apart(self, tokens: int) -> None:
        """Set the number of prefix tokens that are computed separately from the rows."""
        change, self.apart = self.apart - tokens, tokens
        self.lengths = [length + change for length in self.lengths]
        self.tokens_left += change * len(self.waiting)

    def pop(self, position: int) -> int:
        """Remove and return the pending row at a position."""
        index = self.waiting.pop(position)
        self.tokens_left -= self.lengths[index]
        return index

    def put_back(self, index: int) -> None:
        """Return a row to the pending ones."""
        self.waiting.insert(
            bisect_right(self.waiting, self.lengths[index], key=self.lengths.__getitem__), index
        )
        self.tokens_left += self.lengths[index]


@attrs.define(eq=False)
class Batch:
    """The rows of one forward pass, the longest first.

    Args:
        width: Number of tokens of the longest row.
        members: Requests with the index of each row.
        padding: Number of padding tokens so far.
    """

    width: int
    members: list[tuple[Job, int]] = attrs.field(factory=list)
    padding: int = 0

    @property
    def rows(self) -> list[Row]:
        return [job.prepared.rows[index] for job, index in self.members]

    def fill(self, jobs: Sequence[Job], max_rows: int, free_padding: float, max_padding: float = 0) -> None:
        """Add rows no longer than the width, those of the closest length first.

        Args:
            jobs: Requests to take rows from.
            max_rows: Limit of rows in the batch.
            free_padding: Number of padding tokens that is always acceptable.
            max_padding: Largest share of padding in the pass, if that allows more.
        """
        ends = [bisect_right(job.waiting, self.width, key=job.lengths.__getitem__) for job in jobs]
        nearest = [
            (-job.lengths[job.waiting[end - 1]], at)
            for at, (job, end) in enumerate(zip(jobs, ends, strict=True))
            if end
        ]
        heapify(nearest)
        while nearest and len(self.members) < max_rows:
            length, at = nearest[0]
            padding = self.padding + self.width + length
            if padding > max(free_padding, max_padding * self.width * (len(self.members) + 1)):
                return
            self.padding, job = padding, jobs[at]
            ends[at] -= 1
            self.members.append((job, job.pop(ends[at])))
            if ends[at]:
                heapreplace(nearest, (-job.lengths[job.waiting[ends[at] - 1]], at))
            else:
                heappop(nearest)


class RowQueue:
    """The requests of one model, whose rows share forward passes.

    `FairQueue` orders the clients: of a client, every second pass serves the request with the fewest tokens
    left, the others the oldest. Free space in a pass is filled with rows of similar length.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._queue: FairQueue[Job] = FairQueue(remaining=lambda job: job.tokens_left)

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._jobs

    def add(self, job: Job) -> None:
        self._jobs[job.request.id] = job
        self._queue.add(job)

    def remove(self, request_id: str) -> Job | None:
        """Remove and return a request, or return None."""
        job = self._jobs.pop(request_id, None)
        if job is not None:
            self._queue.remove(job)
        return job

    def clear(self) -> list[Job]:
        """Remove and return all requests in the clients' fair order, each client's oldest first."""
        clients = dict.fromkeys(job.client for job in self._queue.in_turn())
        jobs = self._queue.clear()
        self._jobs = {}
        return [job for client in clients for job in jobs if job.client == client]

    def choose(self) -> Job | None:
        """Return the next request to compute; None if no rows are pending."""
        return self._queue.choose([job for job in self._queue if job.waiting])

    def charge(self, job: Job, tokens: int) -> None:
        """Charge a request's client for a pass over the request's shared prefix."""
        self._queue.charge([job], tokens)

    def take(self, first: Job, max_rows: Callable[[int], int], free_padding: float = 0) -> Batch:
        """Remove and return the rows of the next pass.

        Args:
            first: The request to serve; it gets the pass alone if it has a shared prefix.
            max_rows: Function from width to the largest number of rows.
            free_padding: Number of padding tokens that cost less than a further pass.
        """
        others = [job for job in self._jobs.values() if job.waiting and not job.apart]
        batch = Batch(first.lengths[first.waiting[-1]])
        most = min(MAX_ROWS, max(1, max_rows(batch.width)))
        batch.fill([first], most, free_padding)
        batch.fill([first] if first.apart else others, most, free_padding, MAX_PADDING)
        of_clients: dict[str, Job] = {}
        for job, _ in batch.members:
            of_clients.setdefault(job.client, job)
        self._queue.charge(list(of_clients.values()), batch.width * len(batch.members))
        return batch

    def put_back(self, batch: Batch) -> None:
        """Return the rows of a pass that could not be computed to the pending ones."""
        for job, index in batch.members:
            job.put_back(index)

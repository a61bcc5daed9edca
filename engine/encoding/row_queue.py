"""Which rows share the next forward pass: those of like length, of all requests, in fair turns."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heapreplace

import attrs

from greenroom.engine.encoding.rows import PreparedRows, Row
from greenroom.engine.fairness.fair_queue import FairQueue, WaitingPrompt
from greenroom.schemas.events.events import Timing
from greenroom.schemas.messages.requests import InferenceRequest

MAX_ROWS = 1024
"""Rows of one forward pass."""
MAX_PADDING = 0.1
"""Share of a pass that may be padding."""


class Job:
    """A request whose rows are being computed.

    Attributes:
        lengths: Tokens of each row, without those that are computed apart.
        apart: Tokens at the beginning of all rows that are computed apart (`SharedHeads`).
        setbacks: How often there was no memory for that, or it was lost.
        waiting: Indices of the rows that are not computed yet, the shortest first.
        tokens_left: Of those.
        tokens_done: Of rows that are computed.
        unanswered: Rows that are not.
    """

    def __init__(self, request: InferenceRequest, prepared: PreparedRows) -> None:
        self.request = request
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
        """What the request has waited for its first pass, and spent since."""
        now = time.perf_counter()
        begun = now if self._begun is None else self._begun
        return Timing(queued=begun - self._submitted, prefill=now - begun)

    @property
    def is_begun(self) -> bool:
        """Whether anything of it has been computed, or was to be."""
        return self._begun is not None

    def begin(self) -> None:
        """Count the time from now on as spent."""
        if self._begun is None:
            self._begun = time.perf_counter()

    def close(self) -> None:
        """Do nothing: it holds its tokens only."""

    def set_apart(self, tokens: int) -> None:
        """Have so many tokens at the beginning of all rows computed apart from them."""
        change, self.apart = self.apart - tokens, tokens
        self.lengths = [length + change for length in self.lengths]
        self.tokens_left += change * len(self.waiting)

    def pop(self, position: int) -> int:
        """Remove and return the row at a position of those that wait."""
        index = self.waiting.pop(position)
        self.tokens_left -= self.lengths[index]
        return index

    def put_back(self, index: int) -> None:
        """Have a row wait again."""
        self.waiting.insert(
            bisect_right(self.waiting, self.lengths[index], key=self.lengths.__getitem__), index
        )
        self.tokens_left += self.lengths[index]


@attrs.define(eq=False)
class Batch:
    """Rows of one forward pass, the longest first.

    Args:
        width: Tokens of the longest.
    """

    width: int
    members: list[tuple[Job, int]] = attrs.field(factory=list)
    padding: int = 0

    @property
    def rows(self) -> list[Row]:
        """The rows themselves."""
        return [job.prepared.rows[index] for job, index in self.members]

    def fill(self, jobs: Sequence[Job], max_rows: int, free_padding: float, max_padding: float = 0) -> None:
        """Add rows of requests that are no longer than the widest, those of like length first.

        Args:
            free_padding: Tokens of padding that the pass may have in any case.
            max_padding: Share of the pass that may be padding, if that is more.
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

    Clients take turns by `FairQueue`: of one client every second pass is for the request with the fewest
    tokens left, the others for the oldest. What a pass has room for is filled with rows of like length.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._fair_queue = FairQueue()

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._jobs

    def add(self, job: Job) -> None:
        """Add a request."""
        if not self._jobs:
            self._fair_queue.forget()
        self._jobs[job.request.id] = job

    def remove(self, request_id: str) -> Job | None:
        """Remove and return a request, if it is there."""
        return self._jobs.pop(request_id, None)

    def clear(self) -> list[Job]:
        """Remove and return all requests, clients in the order of their turns, of each the oldest first."""
        of_clients: dict[str, list[Job]] = {}
        for job in self._jobs.values():
            of_clients.setdefault(job.request.client, []).append(job)
        self._jobs = {}
        if not of_clients:
            return []
        return [job for client in self._fair_queue.in_order(of_clients) for job in of_clients[client]]

    def choose(self) -> Job | None:
        """Return the request whose turn it is, if any is left."""
        waiting = [job for job in self._jobs.values() if job.waiting]
        if not waiting:
            return None
        prompts = [WaitingPrompt(job.request.client, job.request.id, job.tokens_left) for job in waiting]
        return waiting[self._fair_queue.choose(prompts)]

    def charge(self, job: Job, tokens: int) -> None:
        """Charge the client of a request whose turn was used for what stands before its rows."""
        self._fair_queue.charge([job.request.client], tokens)

    def take(self, first: Job, max_rows: Callable[[int], int], free_padding: float = 0) -> Batch:
        """Remove the rows of the next pass.

        Args:
            first: The request whose turn it is; alone, if something is computed apart from its rows.
            max_rows: How many rows of at most so many tokens a pass may have.
            free_padding: Tokens of padding that cost less than a further pass.
        """
        others = [job for job in self._jobs.values() if job.waiting and not job.apart]
        batch = Batch(first.lengths[first.waiting[-1]])
        most = min(MAX_ROWS, max(1, max_rows(batch.width)))
        batch.fill([first], most, free_padding)
        batch.fill([first] if first.apart else others, most, free_padding, MAX_PADDING)
        clients = dict.fromkeys(job.request.client for job, _ in batch.members)
        self._fair_queue.charge(list(clients), batch.width * len(batch.members))
        return batch

    def put_back(self, batch: Batch) -> None:
        """Have the rows of a pass wait again that could not be computed."""
        for job, index in batch.members:
            job.put_back(index)

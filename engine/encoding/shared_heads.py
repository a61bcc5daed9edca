"""What all rows of a request begin with, computed once for them: a query before its documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from greenroom.engine.encoding.pass_memory import PassMemory
from greenroom.engine.encoding.row_queue import Job
from greenroom.engine.encoding.rows import Row, RowModel, Tokens, Values

MAX_SETBACKS = 5
"""Times that a request may lose its head, or find no memory for it or beside it; then its rows are computed
whole. Heads that take each other's room would otherwise be begun for ever, and none completed."""
WORTH = 4
"""Passes' overheads that it must save: a request whose head is shared has passes of its own."""


class Head(Protocol):
    """A beginning, computed bit by bit, on the model's one thread."""

    @property
    def left(self) -> int:
        """Tokens of it that are not computed yet."""

    def advance(self, count: int) -> None:
        """Compute so many more."""

    def advance_bytes(self, count: int) -> int:
        """Return what that takes beside the weights and the head."""

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return what the model makes of rows that begin so, as `RowModel.compute`."""

    def batch_bytes(self, rows: int, width: int) -> int:
        """Return what a pass takes beside both, for rows with so many tokens behind the head."""


@runtime_checkable
class HeadModel(RowModel, Protocol):
    """A model that can compute a beginning apart: none of its tokens looks at what follows."""

    def head_bytes(self, tokens: int) -> int:
        """Return what a head of so many tokens takes while it is kept."""

    def open_head(self, tokens: Tokens) -> Head:
        """Return a head of which nothing is computed."""


class SharedHeads:
    """The heads of one model's requests, as many as there is memory for, the last used ones.

    A request that loses its head has it computed again in its next turn.
    """

    def __init__(self, model: HeadModel, memory: PassMemory) -> None:
        self._model = model
        self._memory = memory
        self._heads: dict[Job, Head] = {}

    def plan(self, job: Job, pass_overhead: float) -> None:
        """Set the beginning of a request's rows apart, if that saves much.

        Args:
            pass_overhead: Tokens that are computed in the time that a pass takes in any case.
        """
        saved = (len(job.lengths) - 1) * job.prepared.shared
        if saved > WORTH * pass_overhead and job.setbacks < MAX_SETBACKS:
            job.set_apart(job.prepared.shared)

    def head_of(self, job: Job) -> Head | None:
        """Return the head of a request whose turn it is.

        None says that its rows are computed whole; or, if they still have a part `apart`, that there is no
        memory for that just now.
        """
        if not job.apart:
            return None
        head = self._heads.pop(job, None) or self._open(job)
        if head is not None:
            self._heads[job] = head  # behind those that were used longer ago
        return head

    def release(self, job: Job) -> None:
        """Free the head of a request, if it has one."""
        if self._heads.pop(job, None) is not None:
            self._memory.unkeep(self._model.head_bytes(job.apart))

    def release_all(self, job: Job) -> None:
        """Free all heads, since a pass of a request finds no memory: who has it may wait for ours."""
        for each in {job, *self._heads}:
            self._evict(each)

    def give_up_begun(self) -> None:
        """Free heads that are computed in part, since the model is about to be unloaded."""
        for job in [job for job, head in self._heads.items() if head.left]:
            self._evict(job)

    def _open(self, job: Job) -> Head | None:
        nbytes = self._model.head_bytes(job.apart)
        while not self._memory.keep(nbytes):
            if not self._heads:
                self._set_back(job)
                return None
            self._evict(next(iter(self._heads)))
        return self._model.open_head(job.prepared.rows[0].tokens[: job.apart])

    def _evict(self, job: Job) -> None:
        self.release(job)
        self._set_back(job)

    def _set_back(self, job: Job) -> None:
        job.setbacks += 1
        if job.setbacks >= MAX_SETBACKS:
            job.set_apart(0)

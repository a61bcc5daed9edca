"""Shared prefixes of a request's rows, computed once: a query before its documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from greenroom.engine.encoding.pass_memory import PassMemory
from greenroom.engine.encoding.row_queue import Job
from greenroom.engine.encoding.rows import Row, RowModel, Tokens, Values

MAX_SETBACKS = 5
"""Number of times a request's shared prefix may be evicted or lack memory before its rows are computed whole.

Limits retries: shared prefixes could otherwise evict each other forever.
"""
WORTH = 4
"""Savings, in pass overheads, from which a shared prefix is worth its separate passes."""


class SharedPrefix(Protocol):
    """A prefix that is computed in chunks, on the model's thread."""

    @property
    def left(self) -> int:
        """Number of tokens not computed yet."""

    def advance(self, count: int) -> None:
        """Compute `count` more tokens."""

    def advance_bytes(self, count: int) -> int:
        """Return the memory that `advance` takes in bytes, without the weights and the prefix."""

    def compute(self, rows: Sequence[Row]) -> Values:
        """Return the model's outputs for rows with this prefix, as `RowModel.compute` does."""

    def batch_bytes(self, rows: int, width: int) -> int:
        """Return the memory of a pass in bytes, without the weights and the prefix.

        Args:
            rows: Number of rows.
            width: Number of tokens of the longest row after the prefix.
        """


@runtime_checkable
class SharedPrefixModel(RowModel, Protocol):
    """A model that can compute a prefix separately: its attention is causal."""

    def prefix_bytes(self, tokens: int) -> int:
        """Return the bytes of a shared prefix while it is kept."""

    def open_prefix(self, tokens: Tokens) -> SharedPrefix:
        """Return a shared prefix with nothing computed yet."""


class SharedPrefixes:
    """An LRU collection of the shared prefixes of one model's requests, as memory permits.

    An evicted prefix is computed again in the request's next turn.
    """

    def __init__(self, model: SharedPrefixModel, memory: PassMemory) -> None:
        self._model = model
        self._memory = memory
        self._prefixes: dict[Job, SharedPrefix] = {}

    def plan(self, job: Job, pass_overhead: float) -> None:
        """Have a request's common prefix computed separately if that saves enough.

        Args:
            pass_overhead: Fixed cost of a pass, in tokens.
        """
        saved = (len(job.lengths) - 1) * job.prepared.shared
        if saved > WORTH * pass_overhead and job.setbacks < MAX_SETBACKS:
            job.set_apart(job.prepared.shared)

    def prefix_of(self, job: Job) -> SharedPrefix | None:
        """Return the shared prefix of a reranking request, and start it if it has none.

        None means that the rows are computed without one. If `job.apart` is not 0, there is no memory for
        the prefix at the moment.
        """
        if not job.apart:
            return None
        prefix = self._prefixes.pop(job, None) or self._open(job)
        if prefix is not None:
            self._prefixes[job] = prefix  # Moves it to the most recently used end.
        return prefix

    def release(self, job: Job) -> None:
        """Free a request's shared prefix, if it has one."""
        if self._prefixes.pop(job, None) is not None:
            self._memory.unkeep(self._model.prefix_bytes(job.apart))

    def evict_all(self, job: Job) -> None:
        """Evict all shared prefixes, since a pass lacks memory: other models may be waiting for theirs."""
        for each in {job, *self._prefixes}:
            self._evict(each)

    def evict_unfinished(self) -> None:
        """Evict partly computed prefixes, before the model is unloaded."""
        for job in [job for job, prefix in self._prefixes.items() if prefix.left]:
            self._evict(job)

    def _open(self, job: Job) -> SharedPrefix | None:
        nbytes = self._model.prefix_bytes(job.apart)
        while not self._memory.keep(nbytes):
            if not self._prefixes:
                self._set_back(job)
                return None
            self._evict(next(iter(self._prefixes)))
        return self._model.open_prefix(job.prepared.rows[0].tokens[: job.apart])

    def _evict(self, job: Job) -> None:
        self.release(job)
        self._set_back(job)

    def _set_back(self, job: Job) -> None:
        job.setbacks += 1
        if job.setbacks >= MAX_SETBACKS:
            job.set_apart(0)

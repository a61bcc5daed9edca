"""The engine of a loaded encoder and its requests, on the model's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from greenroom.engine.encoding.row_queue import Batch, Job, PassMemory, RowQueue, TokenBudget
from greenroom.engine.encoding.rows import PreparedRows, Row, RowModel, Tokens, Values
from greenroom.engine.resources.device_errors import check_device
from greenroom.engine.resources.memory_account import Share, share_statistics
from greenroom.engine.resources.residence import CachelessEngine
from greenroom.schemas.events.events import Failed, Finished, FinishReason, InferenceEvent, Usage
from greenroom.schemas.events.statistics import EngineSnapshot
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError

Events = list[tuple[str, InferenceEvent]]


class EncoderEngine(CachelessEngine):
    """An engine whose `step` computes one forward pass: rows of similar length, or part of a shared prefix.

    Args:
        share: The model's share of the memory account, charged with its weights.
        budget: Token budget of a pass; see `measure_passes`.
        clock: Clock in seconds, of any origin.
    """

    def __init__(
        self,
        model: RowModel,
        share: Share,
        budget: TokenBudget,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model: RowModel | None = model
        self._memory = PassMemory(share)
        self._clock = clock
        self._queue = RowQueue()
        self._budget = budget
        self._prefixes = SharedPrefixes(model, self._memory) if isinstance(model, SharedPrefixModel) else None
        self._ended: Events = []

    @property
    def has_work(self) -> bool:
        """True if `step` has something to compute or report."""
        return bool(len(self._queue) or self._ended)

    def snapshot(self) -> EngineSnapshot:
        running = sum(job.is_begun for job in self._queue)
        return EngineSnapshot(
            running=running,
            waiting=len(self._queue) - running,
            usage=Usage(prompt=sum(job.tokens_done for job in self._queue)),
            memory=share_statistics(self._memory.share),
        )

    def submit(self, request: InferenceRequest, prepared: PreparedRows) -> None:
        """Add a request; `step` reports an event for each row, and then Finished or Failed. Raises
        ProblemError (400): a row does not fit into memory even alone.
        """
        self.resume(Job(request, prepared))

    def suspend(self) -> Mapping[str, Job] | None:
        """Remove and return all requests with their pending rows; None while events are due."""
        if self._ended:
            return None
        if self._prefixes is not None:
            self._prefixes.evict_unfinished()
        jobs = self._queue.clear()
        for job in jobs:
            job.set_apart(0)
        return {job.request.id: job for job in jobs}

    def unbegun(self) -> Mapping[str, Job]:
        """Remove all requests; return those without a row in any pass."""
        jobs = (job for job in self._queue.clear() if not job.is_begun)
        return {job.request.id: Job(job.request, job.prepared) for job in jobs}

    def resume(self, job: Job) -> None:
        """Continue a request that another engine suspended. Raises ProblemError: 400: a row does not fit into
        memory even alone.
        """
        longest = job.lengths[job.waiting[-1]]
        needed = self._loaded_model().batch_bytes(1, longest)
        if not self._memory.fits_alone(needed):
            detail = (
                f"A text of {longest} tokens takes {needed >> 20} MB to compute, which is more than this "
                "server may have beside its models' weights (setting memory_bytes). Shorten it."
            )
            raise ProblemError(Problem(400, "context_length_exceeded", detail, job.prepared.param))
        if not len(self._queue):
            self._memory.begin_work()
        if self._prefixes is not None:
            self._prefixes.plan(job, self._budget.free_padding)
        self._queue.add(job)

    def cancel(self, request_id: str) -> None:
        """Cancel a request; its Finished comes from the next step."""
        job = self._remove(request_id)
        if job is not None:
            self._end(job, "cancelled")

    def step(self) -> Events:
        job = self._queue.choose()
        if job is not None:
            prefix = None if self._prefixes is None else self._prefixes.prefix_of(job)
            if prefix is not None and prefix.left:
                self._advance(job, prefix)
            elif prefix is not None or not job.apart:
                self._compute(job, self._loaded_model() if prefix is None else prefix)
        ended, self._ended = self._ended, []
        return ended

    def release_memory(self) -> None:
        """Free the memory that MLX caches for reuse."""
        self._memory.clear()

    def close(self) -> None:
        self._queue = RowQueue()
        self._ended = []
        self._model = self._prefixes = None
        self._memory.close()

    def _loaded_model(self) -> RowModel:
        if self._model is None:
            raise RuntimeError("the engine is closed")
        return self._model

    def _max_rows(self, computing: RowModel | SharedPrefix, width: int) -> int:
        allowed = self._memory.allowance()
        rows = max(1, int(self._budget.tokens) // width)
        needed = computing.batch_bytes(rows, width)
        return rows if needed <= allowed else max(1, rows * allowed // needed)

    def _advance(self, job: Job, prefix: SharedPrefix) -> None:
        count = min(prefix.left, int(self._budget.tokens))
        if not self._memory.reserve(prefix.advance_bytes(count)):
            self._evict_prefixes(job)
            return
        began = self._clock()
        job.begin()
        try:
            prefix.advance(count)
        finally:
            self._memory.release()
        self._budget.observe(count, self._clock() - began)
        self._queue.charge(job, count)

    def _compute(self, first: Job, computing: RowModel | SharedPrefix) -> None:
        batch = self._queue.take(first, partial(self._max_rows, computing), self._budget.free_padding)
        rows = batch.rows
        if not self._memory.reserve(computing.batch_bytes(len(rows), batch.width)):
            self._queue.put_back(batch)
            self._evict_prefixes(first)
            return
        began = self._clock()
        for job in _jobs(batch):
            job.begin()
        try:
            computed = computing.compute(rows)
            check_device(idle=True)  # A device error must not appear as results or as a broken model.
        finally:
            self._memory.release()
        self._budget.observe(len(rows) * batch.width, self._clock() - began)
        for (job, index), values in zip(batch.members, computed, strict=True):
            job.tokens_done += len(job.prepared.rows[index].tokens)
            job.unanswered -= 1
            if job.request.id in self._queue:  # Otherwise another row of the request has failed.
                self._answer(job, index, values)
        for job in _jobs(batch):
            if not job.unanswered and self._remove(job.request.id):
                self._end(job, "stop")

    def _evict_prefixes(self, job: Job) -> None:
        if self._prefixes is not None:
            self._prefixes.evict_all(job)

    def _remove(self, request_id: str) -> Job | None:
        job = self._queue.remove(request_id)
        if job is not None and self._prefixes is not None:
            self._prefixes.release(job)
        if not len(self._queue):  # A pass that waited for memory has reserved it.
            self._memory.share.cancel_reservation()
        return job

    def _answer(self, job: Job, index: int, values: Values) -> None:
        try:
            event = self._loaded_model().event(job.prepared, index, values)
        except ProblemError as error:
            self._remove(job.request.id)
            failed = Failed(error.problem, Usage(prompt=job.tokens_done), job.timing)
            self._ended.append((job.request.id, failed))
        else:
            self._ended.append((job.request.id, event))

    def _end(self, job: Job, reason: FinishReason) -> None:
        finished = Finished(reason, Usage(prompt=job.tokens_done), job.timing)
        self._ended.append((job.request.id, finished))


def _jobs(batch: Batch) -> list[Job]:
    return list(dict.fromkeys(job for job, _ in batch.members))


_SIZES = ((1, 4), (1, 8), (4, 8), (16, 8), (64, 8), (256, 8))
"""Rows and tokens per row of each trial; every model accepts these lengths."""
_LONGEST = 0.1  # Time limit of a trial in seconds; a pass predicted to take longer is not tried


def measure_passes(model: RowModel, clock: Callable[[], float], *, pairs: bool = False) -> TokenBudget:
    """Return the initial token budget of a loaded model's passes.

    A pass's time depends on the model's size, its dtype, the device and MLX's kernels for them, so it is
    measured.

    Args:
        clock: Clock in seconds, of any origin.
        pairs: True if the model's rows are pairs of texts.
    """
    measured: list[tuple[int, float]] = []
    for rows, width in _SIZES:
        tokens = rows * width
        if len(measured) > 1 and _foretold(measured, tokens) > _LONGEST:
            break
        began = clock()
        model.compute([Row(np.zeros(width, np.int32), second=1 if pairs else None)] * rows)
        measured.append((tokens, clock() - began))
    return TokenBudget.measured(measured)


def _foretold(measured: list[tuple[int, float]], tokens: int) -> float:
    (few, short), (many, long) = measured[-2:]
    return long + max(0.0, (long - short) / (many - few)) * (tokens - many)


MAX_SETBACKS = 5
"""Number of times a request's shared prefix may be evicted or lack memory before its rows are computed whole.

Limits retries: shared prefixes could otherwise evict each other forever.
"""
WORTH = 4  # Savings, in pass overheads, from which a shared prefix is worth its separate passes


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
        """Return the memory of a pass in bytes, without the weights and the prefix. `rows`: number of rows;
        `width`: number of tokens of the longest row after the prefix.
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
        """Have a request's common prefix computed separately if that saves enough. `pass_overhead`: fixed
        cost of a pass, in tokens.
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

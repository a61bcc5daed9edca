"""The queue of rows: batches rows of similar length from all requests, fairly between clients."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Any

import attrs
import mlx.core as mx
from mlx.utils import tree_flatten

from greenroom.engine.catalog.model_files import text_config
from greenroom.engine.encoding.rows import PreparedRows, Row
from greenroom.engine.resources.fair_queue import FairQueue
from greenroom.engine.resources.memory_account import Share
from greenroom.schemas.events.events import Timing
from greenroom.schemas.messages.requests import InferenceRequest

MAX_ROWS = 1024  # Limit of rows per forward pass
MAX_PADDING = 0.1  # Largest share of padding in a pass


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
        index = self.waiting.pop(position)
        self.tokens_left -= self.lengths[index]
        return index

    def put_back(self, index: int) -> None:
        self.waiting.insert(
            bisect_right(self.waiting, self.lengths[index], key=self.lengths.__getitem__), index
        )
        self.tokens_left += self.lengths[index]


@attrs.define(eq=False)
class Batch:
    """The rows of one forward pass, the longest first. `width`: number of tokens of the longest row;
    `padding`: number of padding tokens so far.
    """

    width: int
    members: list[tuple[Job, int]] = attrs.field(factory=list)
    padding: int = 0

    @property
    def rows(self) -> list[Row]:
        return [job.prepared.rows[index] for job, index in self.members]

    def fill(self, jobs: Sequence[Job], max_rows: int, free_padding: float, max_padding: float = 0) -> None:
        """Add waiting rows that fit the batch's width, longest first, until a limit is reached.

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


TARGET = 0.08
"""Target duration of a pass in seconds: a new request may wait that long, and a cancelled one runs on."""
LONGEST = 0.2  # Limit, in seconds, of a pass of several rows whose duration is mostly fixed
OVERHEAD = 0.0025
"""Rough fixed duration of a pass in seconds: padding that takes less is cheaper than a further pass."""
MAX_TOKENS = 65_536
_GROWTH = 2.0  # Largest growth factor from pass to pass: the first of a size may be slower than predicted


class TokenBudget:
    """The number of tokens per pass, including padding, at which passes take about `TARGET` seconds.

    A pass has a fixed duration, to read the weights, and a duration per token. If the fixed part is long,
    passes may take twice as long as it, but never more than `LONGEST`. One row is always computed.

    Args:
        tokens: Budget of the first pass in tokens.
        fixed: Fixed duration of a pass in seconds, as far as known.

    Attributes:
        tokens: Budget of the next pass in tokens.
    """

    def __init__(self, tokens: float, fixed: float = 0.0) -> None:
        self._fixed = fixed
        self.tokens = min(max(tokens, 1.0), MAX_TOKENS)

    @classmethod
    def measured(cls, passes: Sequence[tuple[int, float]]) -> TokenBudget:
        """Return a budget from timed passes, by the line through the two largest. `passes`: tokens and
        seconds of at least two passes, the largest last.
        """
        (few, short), (many, long) = passes[-2:]
        per_token = max(0.0, (long - short) / (many - few))
        fixed = max(0.0, min(short, long) - per_token * few)
        most = _GROWTH * many
        room = max(0.0, _goal(fixed) - fixed)
        return cls(most if per_token * most <= room else room / per_token, fixed)

    @property
    def free_padding(self) -> float:
        """Number of padding tokens that cost less time than another forward pass would."""
        return self.tokens * OVERHEAD / TARGET

    def observe(self, tokens: int, seconds: float) -> None:
        """Adjust the budget by a pass; a pass under half the budget counts only if it was slow."""
        self._fixed = min(self._fixed, seconds)
        goal = _goal(self._fixed)
        if tokens >= self.tokens / 2 or seconds > goal:
            change = max(0.0, goal - self._fixed) / max(seconds - self._fixed, 1e-6)
            self.tokens = min(max(tokens * min(change, _GROWTH), 1.0), MAX_TOKENS)


def _goal(fixed: float) -> float:
    return min(max(TARGET, 2 * fixed), LONGEST)


_HIDDEN_ARRAYS = 13
_WIDE_ARRAYS = 5
_SCORE_ARRAYS = 4
_MASK_ARRAYS = 3
"""Number of arrays of each size that a layer holds at once.

The measured peaks of three architectures are 0.6 to 1.1 of this estimate.
"""
_FUSED_HEADS = (64, 80, 128)
"""Head sizes for which MLX has a fused GPU kernel that stores no attention scores."""


@attrs.frozen
class PassCost:
    """Memory of a pass, as a function of rows and width. `of_token`: bytes per token, including padding;
    `of_pair`: bytes per pair of tokens in the same row.
    """

    of_token: int
    of_pair: int

    def batch_bytes(self, rows: int, width: int, before: int = 0) -> int:
        """Return the memory of a pass in bytes. `before`: cached tokens of each row, which the pass attends
        to.
        """
        return rows * width * (self.of_token + (before + width) * self.of_pair)


def pass_cost(config: Mapping[str, Any], model: Any) -> PassCost:
    """Return the memory model of a model's passes on this thread's device."""
    sizes = {**config, **text_config(config)}
    hidden = _size(sizes, "hidden_size", 1024)
    wide = _size(sizes, "intermediate_size", 4 * hidden)
    heads = _size(sizes, "num_attention_heads", 16)
    on_gpu = mx.default_device() != mx.Device(mx.cpu)
    fused = on_gpu and _size(sizes, "head_dim", hidden // heads) in _FUSED_HEADS
    scores = 0 if fused else _SCORE_ARRAYS * heads
    tokens = _HIDDEN_ARRAYS * hidden + _WIDE_ARRAYS * wide
    itemsize = _itemsize(model)
    return PassCost(tokens * itemsize, (scores + _MASK_ARRAYS) * itemsize)


def _itemsize(model: Any) -> int:
    types = [value.dtype for _, value in tree_flatten(model.parameters())]
    return max((dtype.size for dtype in types if mx.issubdtype(dtype, mx.floating)), default=4)


def _size(sizes: Mapping[str, Any], field: str, default: int) -> int:
    value = sizes.get(field)
    return value if isinstance(value, int) and value > 0 else default


MAX_BYTES = 512 * 1024 * 1024  # Limit of a pass's memory in bytes, unless a single row needs more
MAX_KEPT = 128 * 1024 * 1024
"""Limit, in bytes, of the growth of MLX's buffer cache during work.

Every pass has arrays of other sizes, so their buffers are rarely reused and would soon fill the memory.
"""
MAX_HELD = 512 * 1024 * 1024  # Limit, in bytes, of memory held between passes
_WAIT = 0.02  # Seconds to wait for memory that another model may free
_SHARE_OF_FREE = 0.5  # Largest share of the free memory for one pass, unless a single row needs more


class PassMemory:
    """The memory of one model's forward passes."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self._kept = mx.get_cache_memory()
        self._held = 0

    def begin_work(self) -> None:
        """Record the current size of MLX's buffer cache, which other models may have filled."""
        self._kept = mx.get_cache_memory()

    def allowance(self) -> int:
        """Return the bytes that a pass of several rows may take now."""
        free = self.share.available()
        return MAX_BYTES if free is None else min(MAX_BYTES, int((free - self._held) * _SHARE_OF_FREE))

    def keep(self, nbytes: int) -> bool:
        """Charge bytes that are held between passes; return whether there is enough memory."""
        held, free = self._held + nbytes, self.share.available_for_running()
        if held > (MAX_HELD if free is None else min(MAX_HELD, int(free * _SHARE_OF_FREE))):
            return False
        fits = self.share.charge_running(held, new=True)
        if not fits and self.share.request_eviction(nbytes, _WAIT):
            fits = self.share.charge_running(held, new=True)
        self._held = held if fits else self._held
        return fits

    def unkeep(self, nbytes: int) -> None:
        """Release bytes that `keep` charged."""
        self._held -= nbytes
        self.share.charge_running(self._held)

    def fits_alone(self, nbytes: int) -> bool:
        """Return whether a pass would fit if no other model computed anything."""
        capacity = self.share.capacity()
        return capacity is None or nbytes <= capacity

    def reserve(self, nbytes: int) -> bool:
        """Reserve a pass's memory; on failure request evictions, wait briefly, and return False."""
        if self.share.charge_running(self._held + nbytes, new=True):
            self.share.cancel_reservation()
            return True
        self.share.reserve(nbytes)
        if not self.share.request_eviction(nbytes, _WAIT):
            self.share.wait_for_change(_WAIT)
        return False

    def release(self) -> None:
        """Release a pass's memory, and free MLX's buffer cache if it has grown too large."""
        self.share.charge_running(self._held)
        if mx.get_cache_memory() > self._kept + MAX_KEPT:
            self.clear()

    def clear(self) -> None:
        mx.clear_cache()
        self._kept = mx.get_cache_memory()

    def close(self) -> None:
        self.share.close()
        mx.clear_cache()

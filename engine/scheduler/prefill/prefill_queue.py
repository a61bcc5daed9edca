"""Prompts that are computed in bounded chunks between decode steps."""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable
from typing import Any

from greenroom.engine.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.fairness.fair_queue import FairQueue, WaitingPrompt
from greenroom.engine.kv_cache import caches
from greenroom.engine.memory.kv_memory import KvMemory
from greenroom.engine.prefix_cache.client import PrefixCacheClient
from greenroom.engine.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.scheduler.costs.cost_model import PrefillChunk, StepCosts
from greenroom.engine.scheduler.prefill.batching_window import BatchingWindow
from greenroom.engine.scheduler.prefill.cobatching import Cobatching
from greenroom.engine.scheduler.prefill.prefill_policy import PrefillPolicy
from greenroom.engine.scheduler.prefill.prefill_request import PrefillRequest
from greenroom.engine.scheduler.prefill.prefill_runner import LaunchedChunk, PrefillRunner
from greenroom.engine.scheduler.prefill.prefix_reuse import PrefixReuse
from greenroom.engine.sequences.failures import SequenceFailures
from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.events import PromptProgress

_DISK_POLL = 0.01
"""Seconds for which a step waits for the disk when nothing else is to be computed."""


class PrefillQueue:
    """Prompts in the order in which they were first admitted, one chunk at a time.

    The last token of a prompt is never computed here: it is the input of the sequence's first decode step.

    Args:
        model: Called as `model(tokens, cache=…)`, tokens `[rows, chunk]`.
        memory: What the caches may take.
        clock: Seconds, from any origin.
    """

    def __init__(
        self,
        model: Any,
        policy: PrefillPolicy | None = None,
        costs: StepCosts | None = None,
        prefix_cache: PrefixCache | None = None,
        memory: KvMemory | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.prefix_cache = PrefixCacheClient(model, prefix_cache)
        self._policy = policy or PrefillPolicy()
        self._costs = costs or StepCosts()
        self._clock = clock
        self._fair_queue = FairQueue()
        room = memory.prompt_room if memory is not None else (lambda tokens: tokens)
        self._prefix_reuse = PrefixReuse(model, self.prefix_cache, self._costs, clock, room)
        self._runner = PrefillRunner(model, self.prefix_cache, memory, clock)
        self._cobatching = Cobatching(self._policy, self._prefix_reuse, self._runner)
        self._requests: list[PrefillRequest] = []
        self._prefilled: list[PrefilledSequences] = []
        self._failed: SequenceFailures = []
        self._window = BatchingWindow(self._policy)
        self._in_flight: tuple[float, list[PrefillChunk]] | None = None
        self._mixed_steps = 0
        self._last_chunk = 0

    def __len__(self) -> int:
        return len(self._requests) + len(self._prefilled)

    @property
    def prefilling(self) -> int:
        """Sequences whose prompts are not wholly computed."""
        return len(self._requests)

    @property
    def restored_bytes(self) -> int:
        """Bytes that the last `advance` copied of cached prefixes."""
        return self._prefix_reuse.copied

    @property
    def waited_ms(self) -> float:
        """Milliseconds of what the last `advance` computed at once."""
        return self._runner.waited_ms

    @property
    def prefilled(self) -> int:
        """Sequences whose prompts are computed and that join a batch at the next step."""
        return sum(len(prefilled.sequences) for prefilled in self._prefilled)

    def add(self, sequence: Sequence, client: str = "", conversation: str = "") -> None:
        """Queue a sequence's prompt."""
        if not self._requests:
            self._fair_queue.forget()
        request = PrefillRequest(sequence, client=client, conversation=conversation or sequence.request_id)
        insort(self._requests, request, key=lambda other: other.sequence.serial)
        self._window.add(request, self._clock())
        self._prefix_reuse.add(request, self._requests)

    def remove(self, sequence: Sequence) -> None:
        """Remove a prompt, if it is here; a chunk of it that is under way is wasted."""
        self._remove([request for request in self._requests if request.sequence is sequence])
        remaining = (prefilled.without(sequence) for prefilled in self._prefilled)
        self._prefilled = [prefilled for prefilled in remaining if prefilled is not None]

    def preempt(self, sequence: Sequence) -> bool:
        """Remove a prompt and free its cache at once; return whether it was here."""
        request = next((request for request in self._requests if request.sequence is sequence), None)
        if request is None:
            return False
        self._runner.wait()
        caches.evaluate(request.cache or [])
        self.remove(sequence)
        return True

    def pop_prefilled(self) -> list[PrefilledSequences]:
        """Remove and return what can decode; the caches may still be under way, which nobody has to await."""
        if self._in_flight is not None and self._requests:
            self._finish_chunk(idle=True)  # a decode step behind it would hide what it takes
        popped, self._prefilled = self._prefilled, []
        return popped

    def pop_failed(self) -> SequenceFailures:
        """Remove and return what could not be computed."""
        failed, self._failed = self._failed, []
        return failed

    def advance(
        self, decode_ms: float, copy_ms: float = 0.0
    ) -> tuple[list[tuple[Sequence, PromptProgress]], list[PrefillChunk]]:
        """Start the next chunk, once the one before it is done.

        Args:
            decode_ms: What a decode step takes, which the chunk delays; 0 if nothing is decoding.
            copy_ms: What copies delayed the last one by, which is taken from the chunk.

        Returns:
            How far prompts have come, and what was launched.
        """
        idle = decode_ms == 0
        self._finish_chunk(idle)
        self._prefix_reuse.allow(0.0)
        self._runner.waited_ms = 0.0
        if not self._requests:
            self._mixed_steps = 0
            return [], []
        following = self._next()
        window = not idle and following is not None and self._window.covers(following)
        mixed_steps = 0 if idle or window else self._mixed_steps + 1
        if (mixed_steps == 0) != (self._mixed_steps == 0):
            self._last_chunk = 0
        self._mixed_steps = mixed_steps
        if self._policy.skips_prefill(self._mixed_steps):
            return [], []
        budget = self._policy.budget(decode_ms, _count_waiting(following, self._requests), window=window)
        began = self._clock()  # launching can block, and then it is what takes the time
        reached, chunks = self._fill(max(budget - copy_ms, 0.0), idle, window)
        if chunks:
            self._last_chunk = sum(rows * tokens for rows, tokens, _ in chunks)
            self._in_flight = (began, chunks) if idle else None
        return [(request.sequence, request.progress) for request in reached], chunks

    def _finish_chunk(self, idle: bool) -> None:
        """Wait for the chunk under way; nobody else times it when nothing is decoding."""
        self._runner.wait()
        if self._in_flight is not None and idle:
            began, chunks = self._in_flight
            self._costs.observe([], chunks, (self._clock() - began) * 1e3)
        self._in_flight = None

    def _fill(
        self, budget: float, idle: bool, window: bool
    ) -> tuple[list[PrefillRequest], list[PrefillChunk]]:
        """Launch chunks for so many milliseconds: the next prompt's as soon as one is done.

        Where nothing decodes, the first that is done does so before anything else is computed.
        """
        reached: list[PrefillRequest] = []
        chunks: list[PrefillChunk] = []
        self._prefix_reuse.allow(budget, idle=idle)
        while self._requests:
            self._prefix_reuse.match(self._requests)
            first = self._next()
            if first is None:
                self._prefix_reuse.wait_for_disk(_DISK_POLL if idle and not chunks else 0.0)
                break
            ready = self._prefix_reuse.start(first, self._requests, timed=idle)
            copying = self._prefix_reuse.pop_cost()
            budget -= copying
            if not ready or (copying and budget <= 0 and not idle):  # its chunk would come on top
                break
            context, last = first.computed, self._last_chunk
            tokens = self._policy.chunk_tokens(self._costs, budget, context, last, idle=idle or window)
            if chunks and (budget <= 0 or tokens <= self._policy.min_chunk):
                break
            chosen = self._cobatching.choose(first, self._requests, tokens)
            launched = self._compute(chosen, tokens, budget, idle)
            chunks += launched.chunks
            reached += chosen
            cost = self._costs.prefill_ms(launched.chunks) + launched.waited_ms
            self._fair_queue.charge([request.client for request in chosen], cost)
            budget -= cost
            if first.remaining or (idle and self._prefilled):
                break
        return reached, chunks

    def _next(self) -> PrefillRequest | None:
        """Return the prompt that is computed next; None if all wait for the disk."""
        able = [request for request in self._requests if not self._prefix_reuse.should_wait(request)]
        waiting = [WaitingPrompt(request.client, request.conversation, request.remaining) for request in able]
        return able[self._fair_queue.choose(waiting)] if able else None

    def _compute(self, chosen: list[PrefillRequest], tokens: int, budget: float, idle: bool) -> LaunchedChunk:
        """Launch a chunk, of so many tokens if it is one prompt's; nothing if all of it was cached."""
        launched = self._runner.launch(chosen, tokens, budget)
        if launched.prefilled is not None:
            self._remove(chosen)
            if idle and not self._prefilled:
                self._window.open(launched.prefilled, self._requests, self._clock())
            self._prefilled.append(launched.prefilled)
        if launched.failures:
            self._failed += launched.failures
            self._remove(chosen)
        return launched

    def _remove(self, requests: list[PrefillRequest]) -> None:
        self._requests = [request for request in self._requests if request not in requests]
        for request in requests:
            self._window.remove(request.sequence)
            self._prefix_reuse.remove(request)


def _count_waiting(following: PrefillRequest | None, requests: list[PrefillRequest]) -> int:
    """Return how many prompts count as waiting, for which streams give way, when that one is next.

    One with features takes as long as many, so that the streams beside it give way no more for others.
    """
    return 1 if following is not None and following.sequence.features is not None else len(requests)

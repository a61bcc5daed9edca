"""Queue of prompts that are prefilled in bounded chunks between decode steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from greenroom.engine.kv_cache import caches
from greenroom.engine.resources.fair_queue import FairQueue
from greenroom.engine.text.batch_cache import PrefilledSequences
from greenroom.engine.text.kv_memory import KvMemory
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache, PrefixCacheClient
from greenroom.engine.text.scheduler.prefill_policy import (
    BatchingWindow,
    PrefillPacing,
    PrefillPolicy,
    PrefillRequest,
)
from greenroom.engine.text.scheduler.prefill_runner import LaunchedChunk, PrefillRunner
from greenroom.engine.text.scheduler.prefix_reuse import PrefixReuse
from greenroom.engine.text.scheduler.step_costs import PrefillChunk, StepCosts
from greenroom.engine.text.sequence import Sequence, SequenceFailures
from greenroom.schemas.events.events import PromptProgress

_DISK_POLL = 0.01  # Seconds that a step waits for the disk if there is nothing else to compute


class PrefillQueue:
    """Prefills admitted prompts, one chunk at a time, in fair order.

    The last token of a prompt is not computed here: it is the input of the sequence's first decode step.

    Args:
        model: Model, called as `model(tokens, cache=…)` with tokens of shape `[rows, chunk]`.
        clock: Clock in seconds, with any origin.
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
        policy = policy or PrefillPolicy()
        self._min_chunk = policy.min_chunk
        self._costs = costs or StepCosts()
        self._clock = clock
        room = memory.prompt_room if memory is not None else (lambda tokens: tokens)
        self._prefix_reuse = PrefixReuse(model, self.prefix_cache, self._costs, clock, room)
        self._runner = PrefillRunner(model, self.prefix_cache, memory, clock)
        self._cobatching = Cobatching(policy, self._prefix_reuse, self._runner)
        self._requests: FairQueue[PrefillRequest] = FairQueue(
            remaining=lambda request: request.remaining,
            conversation=lambda request: request.conversation,
            order=lambda request: request.sequence.serial,
        )
        self._prefilled: list[PrefilledSequences] = []
        self._failed: SequenceFailures = []
        self._window = BatchingWindow(policy)
        self._in_flight: tuple[float, list[PrefillChunk]] | None = None
        self._pacing = PrefillPacing(policy, self._costs, self._window)

    def __len__(self) -> int:
        return len(self._requests) + len(self._prefilled)

    @property
    def prefilling(self) -> int:
        return len(self._requests)

    @property
    def restored_bytes(self) -> int:
        """Bytes of cached prefixes that the last `advance` copied."""
        return self._prefix_reuse.copied

    @property
    def waited_ms(self) -> float:
        """Milliseconds of work that the last `advance` computed synchronously."""
        return self._runner.waited_ms

    @property
    def prefilled(self) -> int:
        """Number of sequences that are prefilled and join a batch at the next step."""
        return sum(len(prefilled.sequences) for prefilled in self._prefilled)

    def add(self, sequence: Sequence, client: str = "", conversation: str = "") -> None:
        request = PrefillRequest(sequence, client=client, conversation=conversation or sequence.request_id)
        self._requests.add(request)
        self._window.add(request, self._clock())
        self._prefix_reuse.add(request, self._requests)

    def remove(self, sequence: Sequence) -> None:
        """Remove a prompt if it is queued; work on its chunk in flight is wasted."""
        self._remove([request for request in self._requests if request.sequence is sequence])
        remaining = (prefilled.without(sequence) for prefilled in self._prefilled)
        self._prefilled = [prefilled for prefilled in remaining if prefilled is not None]

    def preempt(self, sequence: Sequence) -> bool:
        """Remove a prompt and free its cache at once; return whether it was queued."""
        request = next((request for request in self._requests if request.sequence is sequence), None)
        if request is None:
            return False
        self._runner.wait()
        caches.evaluate(request.cache or [])
        self.remove(sequence)
        return True

    def pop_prefilled(self) -> list[PrefilledSequences]:
        """Remove and return prefilled sequences; their caches may be in flight and need not be awaited."""
        if self._in_flight is not None and self._requests:
            self._finish_chunk(idle=True)  # a decode step after it would hide its time
        popped, self._prefilled = self._prefilled, []
        return popped

    def pop_failed(self) -> SequenceFailures:
        failed, self._failed = self._failed, []
        return failed

    def advance(
        self, decode_ms: float, copy_ms: float = 0.0
    ) -> tuple[list[tuple[Sequence, PromptProgress]], list[PrefillChunk]]:
        """Launch the next chunk, once the previous one is done.

        Args:
            decode_ms: Milliseconds of a decode step, which the chunk delays; 0 if nothing decodes.
            copy_ms: Milliseconds that cache copies added to the last step, deducted from the chunk's budget.

        Returns:
            Progress of the computed prompts, and the launched chunks.
        """
        idle = decode_ms == 0
        self._finish_chunk(idle)
        self._prefix_reuse.allow(0.0)
        self._runner.waited_ms = 0.0
        if not self._requests:
            self._pacing.rest()
            return [], []
        budget = self._pacing.begin_step(self._next(), decode_ms, len(self._requests))
        if budget is None:
            return [], []
        began = self._clock()  # a launch can block and then takes most of the time
        reached, chunks = self._fill(max(budget - copy_ms, 0.0), idle)
        if chunks:
            self._pacing.record(chunks)
            self._in_flight = (began, chunks) if idle else None
        return [(request.sequence, request.progress) for request in reached], chunks

    def _finish_chunk(self, idle: bool) -> None:
        """Wait for the chunk in flight, and time it if nothing decoded, since the step timer does not."""
        self._runner.wait()
        if self._in_flight is not None:
            began, chunks = self._in_flight
            spent = self._clock() - began
            self._costs.spend([], 0.0, spent)
            if idle:
                self._costs.observe([], chunks, spent * 1e3)
        self._in_flight = None

    def _fill(self, budget: float, idle: bool) -> tuple[list[PrefillRequest], list[PrefillChunk]]:
        """Launch chunks until the time budget is spent, moving to the next prompt when one is complete.

        If nothing decodes, stop after the first complete prompt, so that it can decode at once.
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
            if not ready or (copying and budget <= 0 and not idle):  # its chunk would exceed the budget
                break
            tokens = self._pacing.chunk_tokens(budget, first.computed)
            if chunks and (budget <= 0 or tokens <= self._min_chunk):
                break
            chosen = self._cobatching.choose(first, self._requests, tokens)
            launched = self._compute(chosen, tokens, budget, idle)
            chunks += launched.chunks
            reached += chosen
            cost = self._costs.prefill_ms(launched.chunks) + launched.waited_ms
            self._requests.charge(chosen, cost)
            budget -= cost
            if first.remaining or (idle and self._prefilled):
                break
        return reached, chunks

    def _next(self) -> PrefillRequest | None:
        """Return the prompt to compute next; None if all wait for the disk or for a shared prefix."""
        able = (request for request in self._requests if not self._prefix_reuse.should_wait(request))
        return self._requests.choose(able)

    def _compute(self, chosen: list[PrefillRequest], tokens: int, budget: float, idle: bool) -> LaunchedChunk:
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
        for request in requests:
            self._requests.remove(request)
            self._window.remove(request.sequence)
            self._prefix_reuse.remove(request)


class Cobatching:
    """Chooses prompts that share a chunk: several only if all of their remaining tokens fit into it.
    `runner`: reserves memory for the shared KV cache.
    """

    def __init__(self, policy: PrefillPolicy, prefix_reuse: PrefixReuse, runner: PrefillRunner) -> None:
        self._policy = policy
        self._prefix_reuse = prefix_reuse
        self._runner = runner

    def choose(
        self, first: PrefillRequest, requests: Iterable[PrefillRequest], tokens: int
    ) -> list[PrefillRequest]:
        """Return the prompts of the next chunk. `first`: prompt that the chunk must contain; its cached
        prefix is restored; `tokens`: size of the chunk in tokens, padding included.
        """
        whole = [
            request
            for request in requests
            if request.sequence.features is None and request.remaining and not request.alone
        ]
        if first not in whole or len(whole) == 1 or first.remaining > tokens // 2:
            return [first]
        to_the_end = first.until_checkpoint == first.remaining
        if first.cache is None or not self._runner.can_cobatch(first.cache) or not to_the_end:
            return [first]
        whole = [request for request in whole if not self._prefix_reuse.should_wait(request)]
        remaining = [request.remaining for request in whole]
        chosen = [whole[index] for index in self._policy.cobatched(remaining, whole.index(first), tokens)]
        longest = 2 * len(first.sequence.prefill_tokens)
        chosen = [
            request
            for request in chosen
            if request is first or self._prefix_reuse.start_whole(request, requests, longest)
        ]
        return chosen if self._runner.reserve(chosen) else [first]

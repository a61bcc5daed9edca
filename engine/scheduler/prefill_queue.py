"""Prompts on their way into the batch: computed in bounded slices between decode steps."""

from __future__ import annotations

import time
from typing import Any

import mlx.core as mx

from greenroom.engine.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.kv_cache import caches
from greenroom.engine.memory.kv_memory import KvMemory
from greenroom.engine.prefix_cache.client import PrefixCacheClient
from greenroom.engine.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.scheduler.batching_window import BatchingWindow
from greenroom.engine.scheduler.cost_model import PrefillChunk, StepCosts
from greenroom.engine.scheduler.fair_queue import FairQueue, WaitingPrompt
from greenroom.engine.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.scheduler.prefill_request import PrefillRequest
from greenroom.engine.scheduler.prefill_runner import PrefillRunner
from greenroom.engine.scheduler.prefix_reuse import PrefixReuse
from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.events import PromptProgress


class PrefillQueue:
    """Prompts in order of arrival, one slice of work at a time.

    The last token of a prompt is never computed here: it is the first input of the row's decoding, so it
    shares the next step of the rows that are running already.

    Args:
        model: Called as `model(tokens, cache=…)`, tokens `[rows, slice]`.
        memory: What the caches may take.
    """

    def __init__(
        self,
        model: Any,
        policy: PrefillPolicy | None = None,
        costs: StepCosts | None = None,
        prefixes: PrefixCache | None = None,
        memory: KvMemory | None = None,
    ) -> None:
        self.prefix_cache = PrefixCacheClient(model, prefixes)
        self._policy = policy or PrefillPolicy()
        self._costs = costs or StepCosts()
        self._fair = FairQueue()
        self._prefix_reuse = PrefixReuse(model, self.prefix_cache)
        self._runner = PrefillRunner(model, self.prefix_cache, memory)
        self._requests: list[PrefillRequest] = []
        self._window = BatchingWindow(self._policy, self._costs)
        self._in_flight: tuple[float, list[PrefillChunk]] | None = None
        self._mixed_steps = 0
        self._last_chunk = 0

    def __len__(self) -> int:
        return len(self._requests) + len(self._window)

    @property
    def prefilling(self) -> int:
        """Sequences whose prompts are not wholly computed."""
        return len(self._requests)

    @property
    def prefilled(self) -> int:
        """Sequences whose prompts are computed and that wait to join a batch."""
        return sum(len(joining.sequences) for joining in self._window)

    def add(
        self, sequence: Sequence, embeddings: mx.array | None = None, client: str = "", conversation: str = ""
    ) -> None:
        """Queue a row's prompt."""
        prompt = PrefillRequest(
            sequence, embeddings, client=client, conversation=conversation or sequence.request_id
        )
        self._requests.append(prompt)
        self._prefix_reuse.add(prompt, self._requests)

    def remove(self, sequence: Sequence) -> None:
        """Forget a prompt; a slice of it that is under way is wasted."""
        self._requests = [prompt for prompt in self._requests if prompt.sequence is not sequence]
        self._window.cancel(sequence)
        self._prefix_reuse.remove(sequence)

    def preempt(self, sequence: Sequence) -> bool:
        """Forget a prompt that will begin anew, and have its memory back; whether it was here."""
        found = any(prompt.sequence is sequence for prompt in self._requests)
        if found:
            self._runner.wait()
            self.remove(sequence)
        return found

    def pop_prefilled(self) -> list[PrefilledSequences]:
        """Rows that can decode; their caches may still be under way, which no caller needs to wait for."""
        burst = self._requests and not self._mixed_steps and self._window
        if burst and self._window.wait_for(self._next(), self._requests):
            return []
        return self._window.take()

    def advance(
        self, decode_ms: float, copied_ms: float = 0.0
    ) -> tuple[list[tuple[Sequence, PromptProgress]], list[PrefillChunk]]:
        """Start the next slice, once the one before it is done.

        Args:
            decode_ms: What a decode step takes, which the slice delays; 0 if nothing is decoding.
            copied_ms: What copies delayed the last one by, which is taken from the slice.

        Returns:
            How far prompts have come, and what was launched.
        """
        idle = decode_ms == 0
        self._finish_chunk(idle)
        if not self._requests:
            self._mixed_steps = 0
            return [], []
        beside = 0 if idle else self._mixed_steps + 1
        if (beside == 0) != (self._mixed_steps == 0):
            self._last_chunk = 0
        self._mixed_steps = beside
        if self._policy.skips_prefill(self._mixed_steps):
            return [], []
        budget = max(self._policy.budget(decode_ms, len(self._requests)) - copied_ms, 0.0)
        began = time.perf_counter()  # launching can block, and then it is what takes the time
        reached, pieces = self._fill(budget, idle)
        if pieces:
            self._last_chunk = sum(rows * tokens for rows, tokens, _ in pieces)
            self._in_flight = (began, pieces) if idle else None
        return [(prompt.sequence, prompt.progress) for prompt in reached], pieces

    def _finish_chunk(self, idle: bool) -> None:
        """Wait for the slice under way; nobody else times it when nothing is decoding."""
        self._runner.wait()
        if self._in_flight is not None and idle:
            began, pieces = self._in_flight
            self._costs.observe([], pieces, (time.perf_counter() - began) * 1e3)
        self._in_flight = None

    def _fill(self, left: float, idle: bool) -> tuple[list[PrefillRequest], list[PrefillChunk]]:
        """Compute prompts for so many milliseconds: the next one as soon as one is done."""
        reached: list[PrefillRequest] = []
        pieces: list[PrefillChunk] = []
        while self._requests:
            self._prefix_reuse.match(self._requests)
            first = self._next()
            tokens = self._policy.chunk_tokens(self._costs, left, first.computed, self._last_chunk, idle=idle)
            if pieces and (left <= 0 or tokens <= self._policy.min_chunk):
                break
            chosen = self._cobatched(first, tokens)
            made = self._compute(chosen, tokens)
            pieces += made
            reached += chosen
            cost = self._costs.prefill_ms(made)
            self._fair.charge([prompt.client for prompt in chosen], cost)
            left -= cost
            if first.remaining:
                break
        return reached, pieces

    def _next(self) -> PrefillRequest:
        able = [prompt for prompt in self._requests if not self._prefix_reuse.should_wait(prompt)]
        waiting = [WaitingPrompt(prompt.client, prompt.conversation, prompt.remaining) for prompt in able]
        return able[self._fair.choose(waiting)]

    def _cobatched(self, first: PrefillRequest, tokens: int) -> list[PrefillRequest]:
        """The prompts of the next slice: several only if all are whole and their caches can share a batch."""
        whole = [prompt for prompt in self._requests if prompt.embeddings is None and prompt.remaining]
        if first not in whole or len(whole) == 1 or first.remaining > tokens // 2:
            return [first]
        self._prefix_reuse.start(first, self._requests)
        if (
            first.cache is None
            or not caches.can_batch(first.cache)
            or first.until_checkpoint < first.remaining
        ):
            return [first]
        whole = [prompt for prompt in whole if not self._prefix_reuse.should_wait(prompt)]
        remaining = [prompt.remaining for prompt in whole]
        chosen = [whole[index] for index in self._policy.cobatched(remaining, whole.index(first), tokens)]
        longest = 2 * len(first.sequence.prefill_tokens)
        chosen = [prompt for prompt in chosen if prompt is first or self._can_cobatch(prompt, longest)]
        return chosen if self._runner.have_room(chosen) else [first]

    def _can_cobatch(self, prompt: PrefillRequest, longest: int) -> bool:
        """Whether a prompt can be computed whole beside others; what is known of it pads them."""
        self._prefix_reuse.start(prompt, self._requests)
        return prompt.until_checkpoint == prompt.remaining and (
            not prompt.computed or len(prompt.sequence.prefill_tokens) <= longest
        )

    def _compute(self, chosen: list[PrefillRequest], tokens: int) -> list[PrefillChunk]:
        """Start a slice, of so many tokens if it is one prompt's; nothing if all of it was known."""
        now = time.perf_counter()
        for prompt in chosen:
            metrics = prompt.sequence.metrics
            metrics.started_at = metrics.started_at or now
            self._prefix_reuse.start(prompt, self._requests)
        first, context = chosen[0], chosen[0].computed
        joining: PrefilledSequences | None
        if len(chosen) > 1:
            width = max(prompt.remaining for prompt in chosen)
            joining = self._runner.compute_together(chosen)
        else:
            width = min(first.until_checkpoint, tokens)
            joining = self._runner.compute(first, width)
        if joining is not None:
            self._requests = [prompt for prompt in self._requests if prompt not in chosen]
            for row in joining.sequences:
                self._prefix_reuse.remove(row)
            self._window.add(joining)
        return [(len(chosen), width, context)] if width else []

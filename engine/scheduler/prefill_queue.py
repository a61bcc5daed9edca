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
from greenroom.engine.scheduler.prefill_chunks import PrefillChunks
from greenroom.engine.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.scheduler.prefix_reuse import PrefixReuse
from greenroom.engine.scheduler.prompt import Prompt
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
        self.recall = PrefixCacheClient(model, prefixes)
        self._policy = policy or PrefillPolicy()
        self._costs = costs or StepCosts()
        self._fair = FairQueue()
        self._beginnings = PrefixReuse(model, self.recall)
        self._slices = PrefillChunks(model, self.recall, memory)
        self._prompts: list[Prompt] = []
        self._ready = BatchingWindow(self._policy, self._costs)
        self._launched: tuple[float, list[PrefillChunk]] | None = None
        self._beside = 0
        self._last = 0

    def __len__(self) -> int:
        return len(self._prompts) + len(self._ready)

    @property
    def prefilling(self) -> int:
        """Sequences whose prompts are not wholly computed."""
        return len(self._prompts)

    @property
    def prefilled(self) -> int:
        """Sequences whose prompts are computed and that wait to join a batch."""
        return sum(len(joining.rows) for joining in self._ready)

    def add(
        self, row: Sequence, embeddings: mx.array | None = None, client: str = "", conversation: str = ""
    ) -> None:
        """Queue a row's prompt."""
        prompt = Prompt(row, embeddings, client=client, conversation=conversation or row.request_id)
        self._prompts.append(prompt)
        self._beginnings.arrives(prompt, self._prompts)

    def cancel(self, row: Sequence) -> None:
        """Forget a prompt; a slice of it that is under way is wasted."""
        self._prompts = [prompt for prompt in self._prompts if prompt.row is not row]
        self._ready.cancel(row)
        self._beginnings.ends(row)

    def withdraw(self, row: Sequence) -> bool:
        """Forget a prompt that will begin anew, and have its memory back; whether it was here."""
        found = any(prompt.row is row for prompt in self._prompts)
        if found:
            self._slices.wait()
            self.cancel(row)
        return found

    def take_ready(self) -> list[PrefilledSequences]:
        """Rows that can decode; their caches may still be under way, which no caller needs to wait for."""
        burst = self._prompts and not self._beside and self._ready
        if burst and self._ready.wait_for(self._next(), self._prompts):
            return []
        return self._ready.take()

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
        self._finish_slice(idle)
        if not self._prompts:
            self._beside = 0
            return [], []
        beside = 0 if idle else self._beside + 1
        if (beside == 0) != (self._beside == 0):
            self._last = 0
        self._beside = beside
        if self._policy.pauses(self._beside):
            return [], []
        budget = max(self._policy.budget(decode_ms, len(self._prompts)) - copied_ms, 0.0)
        began = time.perf_counter()  # launching can block, and then it is what takes the time
        reached, pieces = self._fill(budget, idle)
        if pieces:
            self._last = sum(rows * tokens for rows, tokens, _ in pieces)
            self._launched = (began, pieces) if idle else None
        return [(prompt.row, prompt.progress) for prompt in reached], pieces

    def _finish_slice(self, idle: bool) -> None:
        """Wait for the slice under way; nobody else times it when nothing is decoding."""
        self._slices.wait()
        if self._launched is not None and idle:
            began, pieces = self._launched
            self._costs.observe([], pieces, (time.perf_counter() - began) * 1e3)
        self._launched = None

    def _fill(self, left: float, idle: bool) -> tuple[list[Prompt], list[PrefillChunk]]:
        """Compute prompts for so many milliseconds: the next one as soon as one is done."""
        reached: list[Prompt] = []
        pieces: list[PrefillChunk] = []
        while self._prompts:
            self._beginnings.look_up(self._prompts)
            first = self._next()
            tokens = self._policy.tokens(self._costs, left, first.done, self._last, idle=idle)
            if pieces and (left <= 0 or tokens <= self._policy.least_tokens):
                break
            chosen = self._together(first, tokens)
            made = self._compute(chosen, tokens)
            pieces += made
            reached += chosen
            cost = self._costs.slices_ms(made)
            self._fair.charge([prompt.client for prompt in chosen], cost)
            left -= cost
            if first.remaining:
                break
        return reached, pieces

    def _next(self) -> Prompt:
        able = [prompt for prompt in self._prompts if not self._beginnings.waits(prompt)]
        waiting = [WaitingPrompt(prompt.client, prompt.conversation, prompt.remaining) for prompt in able]
        return able[self._fair.choose(waiting)]

    def _together(self, first: Prompt, tokens: int) -> list[Prompt]:
        """The prompts of the next slice: several only if all are whole and their caches can share a batch."""
        whole = [prompt for prompt in self._prompts if prompt.embeddings is None and prompt.remaining]
        if first not in whole or len(whole) == 1 or first.remaining > tokens // 2:
            return [first]
        self._beginnings.begin(first, self._prompts)
        if first.cache is None or not caches.can_batch(first.cache) or first.until_stop < first.remaining:
            return [first]
        whole = [prompt for prompt in whole if not self._beginnings.waits(prompt)]
        remaining = [prompt.remaining for prompt in whole]
        chosen = [whole[index] for index in self._policy.companions(remaining, whole.index(first), tokens)]
        longest = 2 * len(first.row.inputs)
        chosen = [prompt for prompt in chosen if prompt is first or self._fits(prompt, longest)]
        return chosen if self._slices.have_room(chosen) else [first]

    def _fits(self, prompt: Prompt, longest: int) -> bool:
        """Whether a prompt can be computed whole beside others; what is known of it pads them."""
        self._beginnings.begin(prompt, self._prompts)
        return prompt.until_stop == prompt.remaining and (
            not prompt.done or len(prompt.row.inputs) <= longest
        )

    def _compute(self, chosen: list[Prompt], tokens: int) -> list[PrefillChunk]:
        """Start a slice, of so many tokens if it is one prompt's; nothing if all of it was known."""
        now = time.perf_counter()
        for prompt in chosen:
            prompt.row.started = prompt.row.started or now
            self._beginnings.begin(prompt, self._prompts)
        first, context = chosen[0], chosen[0].done
        joining: PrefilledSequences | None
        if len(chosen) > 1:
            width = max(prompt.remaining for prompt in chosen)
            joining = self._slices.compute_together(chosen)
        else:
            width = min(first.until_stop, tokens)
            joining = self._slices.compute(first, width)
        if joining is not None:
            self._prompts = [prompt for prompt in self._prompts if prompt not in chosen]
            for row in joining.rows:
                self._beginnings.ends(row)
            self._ready.add(joining)
        return [(len(chosen), width, context)] if width else []

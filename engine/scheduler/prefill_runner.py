"""Slices of prompts: what the model is called with, and what becomes of the caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from greenroom.engine.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.kv_cache.growth import GROWTH_STEP
from greenroom.engine.memory.kv_memory import KvMemory
from greenroom.engine.prefix_cache.client import PrefixCacheClient
from greenroom.engine.scheduler.prefill_request import PrefillRequest


class PrefillRunner:
    """Computes what it is told of prompts that have begun, and keeps it for others.

    Args:
        model: Called as `model(tokens, cache=…)`, tokens `[rows, slice]`.
        recall: Where what is computed is kept.
        memory: What the caches may take; None is unlimited.
    """

    def __init__(self, model: Any, recall: PrefixCacheClient, memory: KvMemory | None) -> None:
        self._model = model
        self._recall = recall
        self._memory = memory
        self._under_way: list[Cache] = []

    def compute(self, prompt: PrefillRequest, tokens: int) -> PrefilledSequences | None:
        """Start to compute the next so many tokens of a prompt; its row if that is all of it."""
        cache = prompt.cache
        assert cache is not None
        if tokens:
            if self._memory is not None:
                self._memory.preallocate(cache, len(prompt.sequence.prefill_tokens))
            span = slice(prompt.computed, prompt.computed + tokens)
            inputs = mx.array(list(prompt.sequence.prefill_tokens[span]))[None]
            if prompt.embeddings is None or prompt.computed >= len(prompt.embeddings) - 1:
                self._model(inputs, cache=cache)
            else:
                self._model(inputs, cache=cache, input_embeddings=prompt.embeddings[span][None])
            self._launch(cache)
        prompt.computed += tokens
        if prompt.remaining == 0 or prompt.computed in prompt.checkpoints:
            self._recall.insert_prompt(prompt.sequence, cache, None, prompt.computed)
        return None if prompt.remaining else PrefilledSequences((prompt.sequence,), cache)

    def compute_together(self, prompts: Sequence[PrefillRequest]) -> PrefilledSequences:
        """Start to compute all that remains of several prompts in one pass."""
        cache = caches.merge([prompt.cache for prompt in prompts if prompt.cache is not None])
        lengths = [prompt.remaining for prompt in prompts]
        width = max(lengths)
        padding = [width - length for length in lengths]
        rows = [
            [*prompt.sequence.prefill_tokens[prompt.computed : -1], *[0] * pad]
            for prompt, pad in zip(prompts, padding, strict=True)
        ]
        if any(padding):
            caches.prepare(cache, lengths, padding)
        self._model(mx.array(rows), cache=cache)
        if any(padding):
            caches.finalize(cache)
        self._launch(cache)
        for index, prompt in enumerate(prompts):
            prompt.computed += prompt.remaining
            self._recall.insert_prompt(prompt.sequence, cache, index, prompt.computed)
        return PrefilledSequences(tuple(prompt.sequence for prompt in prompts), cache)

    def wait(self) -> None:
        """Wait for everything that was started."""
        for cache in self._under_way:
            mx.eval(caches.state(cache))
        self._under_way = []

    def have_room(self, prompts: Sequence[PrefillRequest]) -> bool:
        """Whether a batched cache of these prompts, with what was known of them, can be promised memory."""
        if self._memory is None:
            return True
        footprint = self._memory.size_model
        longest = max(len(prompt.sequence.prefill_tokens) for prompt in prompts)
        known = sum(footprint.nbytes(1, prompt.computed) for prompt in prompts if prompt.computed)
        joined = footprint.nbytes(len(prompts), longest + GROWTH_STEP, longest)
        return self._memory.grow([prompt.sequence for prompt in prompts], joined + known)

    def _launch(self, cache: Cache) -> None:
        mx.async_eval(caches.state(cache))
        self._under_way.append(cache)

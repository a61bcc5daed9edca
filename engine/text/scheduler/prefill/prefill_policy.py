"""Policy for the amount of prefill between two decode steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from greenroom.engine.text.scheduler.costs.cost_model import StepCosts

_FIRST_CHUNK = 16
_FIRST_CHUNK_IDLE = 256
"""Tokens of a first chunk while costs are unknown."""
_KNOWN_AFTER = 8
"""Number of timed chunks after which a larger first chunk is safe."""
_GROWTH = 2
_SIMILAR = 2
_SKIP_EVERY = 64
_SKIPS = 2


@attrs.frozen
class PrefillPolicy:
    """Sizes chunks in milliseconds, to bound the inter-token latency of running streams.

    Args:
        max_stall: Maximum time that a chunk of a lone prompt may add between two tokens, in decode steps.
        step_ms: Lower bound for the assumed decode step in milliseconds; nobody notices a shorter wait.
        max_waiting_factor: Largest factor by which chunks grow with the number of waiting prompts.
        idle_ms: Milliseconds of a chunk while nothing decodes; a newly arriving prompt waits for it.
        batching_window_ms: Milliseconds of a chunk while all decoding sequences arrived with its prompts.
        min_chunk: Minimum tokens of a chunk, whatever they cost, so that every prompt makes progress.
        max_chunk: Maximum number of tokens of a chunk, padding included.
        padding: Largest share of a chunk that may be padding.
    """

    max_stall: float = 2.0
    step_ms: float = 6.0
    max_waiting_factor: float = 4.0
    idle_ms: float = 250.0
    batching_window_ms: float = 150.0
    min_chunk: int = 4
    max_chunk: int = 2048
    padding: float = 0.25

    def budget(self, decode_ms: float, waiting: int = 1, *, window: bool = False) -> float:
        """Return the time budget of the next chunk, in milliseconds.

        A burst of prompts finishes soonest if decoding sequences yield to prefill: sequences are cheaper in
        one batch, and the first of a burst would otherwise decode alone for long.

        Args:
            decode_ms: Milliseconds of a decode step of the running batches; 0 if there are none.
            waiting: Number of prompts not fully computed.
            window: Whether the prompt arrived with all decoding sequences.
        """
        if not decode_ms:
            return self.idle_ms
        factor = min(max(1.0, waiting), self.max_waiting_factor)
        stall = self.max_stall * max(decode_ms, self.step_ms) * factor
        return max(stall, self.batching_window_ms) if window else stall

    def is_similar(self, remaining: int, longest: int) -> bool:
        """Return whether a prompt with `remaining` tokens left is short enough to join a batching window.

        Args:
            longest: Tokens of the longest prompt that opened the window.
        """
        return remaining <= _SIMILAR * longest

    def skips_prefill(self, mixed_steps: int) -> bool:
        """Return whether the next step runs without prefill, to measure the decode step by itself.

        The machine may have become slower or faster since the prompt began; chunk times alone cannot tell
        that from a more expensive prompt.

        Args:
            mixed_steps: Steps since prefill began beside running batches.
        """
        return mixed_steps % _SKIP_EVERY >= _SKIP_EVERY - _SKIPS

    def chunk_tokens(self, costs: StepCosts, budget: float, context: int, last: int, *, idle: bool) -> int:
        """Return the number of tokens of one prompt that fit into the budget.

        Chunks grow gradually, since costs are only known for sizes already tried; if no other stream would
        notice a wrong guess, this ends after a few timed chunks.

        Args:
            context: Tokens already in its KV cache.
            last: Tokens of the previous chunk; 0 at the start.
            idle: Whether nothing decodes but sequences that arrived with the prompt.
        """
        if math.isinf(budget):
            return self.max_chunk
        known = costs.prefill.samples >= _KNOWN_AFTER
        if known and idle:
            return max(min(costs.tokens_within(budget, context), self.max_chunk), self.min_chunk)
        unknown = _FIRST_CHUNK_IDLE if idle or known else _FIRST_CHUNK
        first = round(unknown * min(self.max_stall, 1))
        tried = max(_GROWTH * last, first)
        fitting = costs.tokens_within(budget, context) if costs.prefill.samples else tried
        return max(min(fitting, tried, self.max_chunk), self.min_chunk)

    def cobatched(self, remaining: Sequence[int], first: int, tokens: int) -> list[int]:
        """Return the indices of the prompts that can share a chunk with `first` at little padding.

        Args:
            remaining: Uncomputed tokens of each prompt.
            tokens: Size of the chunk in tokens, padding included.
        """
        chosen, longest, total = [first], remaining[first], remaining[first]
        by_difference = sorted(range(len(remaining)), key=lambda index: abs(remaining[index] - longest))
        for index in by_difference:
            if index == first:
                continue
            width = max(longest, remaining[index])
            area = width * (len(chosen) + 1)
            if area > tokens or area - total - remaining[index] > self.padding * area:
                break
            chosen.append(index)
            longest, total = width, total + remaining[index]
        return chosen

"""How much of the waiting prompts is computed between two decode steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from greenroom.engine.scheduler.costs.cost_model import StepCosts

_FIRST_CHUNK = 16
_FIRST_CHUNK_IDLE = 256
"""Tokens of a first chunk, when nobody knows yet what one costs."""
_KNOWN_AFTER = 8
"""Chunks after which costs are known well enough for a larger first chunk."""
_GROWTH = 2
_SIMILAR = 2
_SKIP_EVERY = 64
_SKIPS = 2


@attrs.frozen
class PrefillPolicy:
    """Sizes chunks in milliseconds, so that running streams see a bounded time between tokens.

    Args:
        max_stall: Decode steps that a chunk of a lone prompt may add between two tokens of running streams.
        step_ms: What a decode step counts at least: a shorter wait is seen by nobody.
        max_waiting_factor: How many times longer chunks may be while that many prompts wait.
        idle_ms: Length of a chunk while nothing decodes; the next prompt to come waits for it.
        batching_window_ms: Length of a chunk while all that decode came together with its prompts.
        min_chunk: Tokens that a chunk has whatever they cost, so that every prompt is done one day.
        max_chunk: Tokens that no chunk exceeds, padding included.
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
        """Return the milliseconds for the next chunk.

        A burst of prompts is done soonest for all if those that decode already give way: sequences cost less
        together, and the first of a burst would otherwise decode alone for long.

        Args:
            decode_ms: What a decode step of the running batches takes; 0 if there are none.
            waiting: Prompts that are not computed.
            window: The prompt came together with all that decode.
        """
        if not decode_ms:
            return self.idle_ms
        factor = min(max(1.0, waiting), self.max_waiting_factor)
        stall = self.max_stall * max(decode_ms, self.step_ms) * factor
        return max(stall, self.batching_window_ms) if window else stall

    def is_similar(self, remaining: int, longest: int) -> bool:
        """Return whether sequences, of which the longest prompt has so many tokens, wait for a prompt."""
        return remaining <= _SIMILAR * longest

    def skips_prefill(self, mixed_steps: int) -> bool:
        """Return whether the next step goes without a chunk, which shows what a decode step takes by itself.

        The machine may have become slower or faster since the prompt began; chunks alone cannot tell that
        from a prompt that costs more.

        Args:
            mixed_steps: Steps since prefill began beside running batches.
        """
        return mixed_steps % _SKIP_EVERY >= _SKIP_EVERY - _SKIPS

    def chunk_tokens(self, costs: StepCosts, budget: float, context: int, last: int, *, idle: bool) -> int:
        """Return how many tokens of one prompt fit into the budget.

        Chunks grow step by step, since costs are only known for what was tried; where no other streams would
        notice a wrong guess, only until a few were timed.

        Args:
            context: Tokens that its cache holds already.
            last: Tokens of the chunk before; 0 at the beginning.
            idle: Nothing decodes but what came together with the prompt.
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
        """Return the indices of the prompts that share a chunk with the `first`: those with little padding.

        Args:
            remaining: Tokens that each prompt still needs.
            tokens: Size of the chunk, padding included.
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

"""How much of the waiting prompts is computed between two decode steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from greenroom.engine.scheduler.cost_model import StepCosts

_UNKNOWN = 16
_UNKNOWN_IDLE = 256
"""Tokens of a first slice, when nobody knows yet what one costs."""
_KNOWN = 8
"""Slices after which costs are known well enough for a larger beginning."""
_GROWTH = 2
_SIMILAR = 2
_PAUSE_EVERY = 64
_PAUSES = 2


@attrs.frozen
class PrefillPolicy:
    """Sizes chunks in milliseconds, so that running streams see a bounded time between tokens.

    Args:
        max_stall: Decode steps that a chunk of a lone prompt may add between two tokens of running streams.
        step_ms: What a decode step counts at least: a shorter wait is seen by nobody.
        max_waiting_factor: How many times longer chunks may be while that many prompts wait.
        idle_ms: Length of a chunk while nothing decodes; the next prompt to come waits for it.
        batching_window_ms: Longest that a sequence waits for prompts that came with its own, while nothing
            decodes.
        min_chunk: Tokens that a chunk has whatever they cost, so that every prompt is done one day.
        max_chunk: Tokens that no chunk exceeds, padding included.
        padding: Largest share of a chunk that may be padding.
    """

    max_stall: float = 2.0
    step_ms: float = 6.0
    max_waiting_factor: float = 4.0
    idle_ms: float = 250.0
    batching_window_ms: float = 2000.0
    min_chunk: int = 4
    max_chunk: int = 2048
    padding: float = 0.25

    def budget(self, decode_ms: float, waiting: int = 1) -> float:
        """Milliseconds for the next slice.

        A burst of prompts is done soonest for all if those that decode already give way: rows cost less
        together, and the first of a burst would otherwise decode alone for long.

        Args:
            decode_ms: What a decode step of the running rows takes; 0 if there are none.
            waiting: Prompts that are not computed.
        """
        if not decode_ms:
            return self.idle_ms
        crowd = min(max(1.0, waiting), self.max_waiting_factor)
        return self.max_stall * max(decode_ms, self.step_ms) * crowd

    def should_wait(self, waited_ms: float, rest_ms: float) -> bool:
        """Whether rows that could begin to decode wait for the other prompts, since all came at once.

        Rows that decode while others of their burst are computed slow each of these down, and gain little:
        the pass over the weights that one row needs would serve all.

        Args:
            waited_ms: Time since the first of them could have begun; nobody else decodes.
            rest_ms: What the other prompts take.
        """
        return waited_ms + rest_ms <= self.batching_window_ms

    def is_similar(self, remaining: int, longest: int) -> bool:
        """Whether a prompt is one that rows wait for whose longest prompt has so many tokens."""
        return remaining <= _SIMILAR * longest

    def skips_prefill(self, slices: int) -> bool:
        """Whether the next step goes without a slice, which shows what a decode step takes by itself.

        The machine may have become slower or faster since the prompt began; slices alone cannot tell that
        from a prompt that costs more.

        Args:
            slices: Steps since prefill began beside running rows.
        """
        return slices % _PAUSE_EVERY >= _PAUSE_EVERY - _PAUSES

    def chunk_tokens(self, costs: StepCosts, budget: float, context: int, last: int, *, idle: bool) -> int:
        """Tokens of one prompt that fit into the budget.

        Slices grow step by step, since costs are only known for what was tried.

        Args:
            context: Tokens that its cache holds already.
            last: Tokens of the slice before; 0 at the beginning.
            idle: Nobody reads along.
        """
        if math.isinf(budget):
            return self.max_chunk
        unknown = _UNKNOWN_IDLE if idle or costs.prefill.samples >= _KNOWN else _UNKNOWN
        first = round(unknown * min(self.max_stall, 1))
        tried = max(_GROWTH * last, first)
        fitting = costs.tokens_within(budget, context) if costs.prefill.samples else tried
        return max(min(fitting, tried, self.max_chunk), self.min_chunk)

    def cobatched(self, remaining: Sequence[int], first: int, tokens: int) -> list[int]:
        """Indices of the prompts that share a slice with the `first`: those so alike that little is padding.

        Args:
            remaining: Tokens that each prompt still needs.
            tokens: Size of the slice, padding included.
        """
        chosen, longest, total = [first], remaining[first], remaining[first]
        by_likeness = sorted(range(len(remaining)), key=lambda index: abs(remaining[index] - longest))
        for index in by_likeness:
            if index == first:
                continue
            width = max(longest, remaining[index])
            area = width * (len(chosen) + 1)
            if area > tokens or area - total - remaining[index] > self.padding * area:
                break
            chosen.append(index)
            longest, total = width, total + remaining[index]
        return chosen

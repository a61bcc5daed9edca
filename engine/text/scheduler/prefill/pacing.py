"""Pacing of prefill: how much of each step a prompt may take from the sequences that decode."""

from __future__ import annotations

from collections.abc import Collection

from greenroom.engine.text.scheduler.costs.cost_model import PrefillChunk, StepCosts
from greenroom.engine.text.scheduler.prefill.batching_window import BatchingWindow
from greenroom.engine.text.scheduler.prefill.prefill_policy import PrefillPolicy
from greenroom.engine.text.scheduler.prefill.prefill_request import PrefillRequest


class PrefillPacing:
    """Applies the policy to successive steps, of which some compute no prompt.

    Args:
        costs: Cost model, from which the size of chunks follows.
        window: Batching window, in which chunks may be longer.
    """

    def __init__(self, policy: PrefillPolicy, costs: StepCosts, window: BatchingWindow) -> None:
        self._policy = policy
        self._costs = costs
        self._window = window
        self._mixed_steps = 0
        self._last_chunk = 0
        self._long_chunks = False

    def rest(self) -> None:
        """Begin a step without prompts."""
        self._mixed_steps = 0

    def begin_step(self, following: PrefillRequest | None, decode_ms: float, waiting: int) -> float | None:
        """Return the milliseconds that prefill may take in this step; None if no prompt is computed.

        Args:
            following: Prompt to compute next; None if all wait.
            decode_ms: Milliseconds of a decode step, which prefill delays; 0 if nothing decodes.
            waiting: Number of prompts that wait.
        """
        idle = decode_ms == 0
        in_window = not idle and following is not None and self._window.covers(following)
        self._long_chunks = idle or in_window
        mixed_steps = 0 if self._long_chunks else self._mixed_steps + 1
        if (mixed_steps == 0) != (self._mixed_steps == 0):
            self._last_chunk = 0
        self._mixed_steps = mixed_steps
        if self._policy.skips_prefill(mixed_steps):
            return None
        if following is not None and following.sequence.features is not None:
            waiting = 1  # Images take as long as many prompts, so streams yield no further for others.
        return self._policy.budget(decode_ms, waiting, window=in_window)

    def chunk_tokens(self, budget: float, context: int) -> int:
        """Return the size of the next chunk in tokens.

        Args:
            budget: Milliseconds left in this step.
            context: Number of tokens before the chunk.
        """
        return self._policy.chunk_tokens(
            self._costs, budget, context, self._last_chunk, idle=self._long_chunks
        )

    def record(self, chunks: Collection[PrefillChunk]) -> None:
        """Record the chunks that were launched in this step; later ones grow gradually from their size."""
        self._last_chunk = sum(rows * tokens for rows, tokens, _ in chunks)

"""What an engine does while nobody asks it for anything, within the memory that nobody needs."""

from __future__ import annotations

from greenroom.engine.loading.batching.idle_proof import IdleProof
from greenroom.engine.loading.batching.proof import ROWS, TOKENS
from greenroom.engine.memory.kv_memory import KvMemory

_RETRY = 10.0
"""Seconds after which memory that was short may be there."""


class IdleWork:
    """Computes the rest of a model's proof, and gives its memory up to whoever needs it.

    Args:
        proof: None is nothing to do.
        memory: Is charged for its caches while they are there.
    """

    def __init__(self, proof: IdleProof | None, memory: KvMemory) -> None:
        self._proof = proof
        self._memory = memory
        self._is_short = False
        if proof is not None and not self._reserve(proof):
            proof.pause()

    @property
    def delay(self) -> float | None:
        """Seconds without work after which `advance` does something; None: there is nothing to do."""
        delay = None if self._proof is None else self._proof.delay
        return max(delay, _RETRY) if delay is not None and self._is_short else delay

    def advance(self) -> None:
        """Compute a pass, if there is memory for it."""
        if self._proof is None or self._proof.delay is None:
            return
        self._is_short = not self._reserve(self._proof)
        if self._is_short:
            return
        self._proof.advance()
        if self._proof.delay is None:
            self.release()
            self._proof = None

    def release(self) -> None:
        """Free what is kept for the passes that follow."""
        self._memory.reclaim()

    def _reserve(self, proof: IdleProof) -> bool:
        return self._memory.reserve_idle(self._memory.size_model.nbytes(ROWS, TOKENS), proof.pause)

"""The rest of a proof for which the load had no time, in the pauses of the loaded model."""

from __future__ import annotations

from typing import Any

import attrs
import structlog

from greenroom.engine.kv_cache.batching import Batching, restrict
from greenroom.engine.loading.batching.known import remember
from greenroom.engine.loading.batching.proof import Proof

PIECE = 0.3
"""Seconds of a pass that can be cut, and so of what a request may have to wait for."""

MAX_PASS_SECONDS = 10.0
"""Seconds of one that cannot be cut: prompts together, four rows of 27 tokens. Whoever computes these so
slowly gains nothing from computing prompts together."""

_REST = 5
"""How many times as long as a pass takes nobody must have asked for anything before it begins, so that hardly
any request comes in the middle of one. If it is longer than a piece: as many times more as it is longer."""

log = structlog.get_logger(__name__)


class IdleProof:
    """Computes a pass when it is told to, and lifts what restricts the model as soon as that is proved.

    Args:
        model: Whose rows are computed alone, until more is known.
        proof: Of that model; not complete.
        key: By which findings are remembered.
    """

    def __init__(self, model: Any, proof: Proof, key: str) -> None:
        self._model = model
        self._proof = proof
        self._key = key
        self._over = False

    @property
    def delay(self) -> float | None:
        """Seconds of idleness after which a pass is due; None: there is nothing more to do."""
        seconds = self._proof.predict(PIECE)
        return None if self._over else _REST * seconds * max(1.0, seconds / PIECE)

    def advance(self) -> None:
        """Compute one pass. No row of the model may be under way."""
        before = self._proof.findings
        self._proof.advance(PIECE)
        found, batching = self._proof.findings, self._proof.findings.batching
        if found != before:
            restrict(self._model, batching)
            log_proof(batching, seconds=round(self._proof.seconds, 3), idle=True)
            if not self._proof.failed:
                remember(self._key, found)
        due = self._proof.predict(PIECE)
        if not found.complete and due > MAX_PASS_SECONDS:
            batching = attrs.evolve(batching, reason=f"the next pass of its proof would take {due:.1f} s")
        elif not found.complete:
            return
        self._over = True
        self.pause()
        log_restriction(batching, "proof")

    def pause(self) -> None:
        """Free what was computed for a check that is not at its end."""
        self._proof.pause()


def log_proof(batching: Batching, **figures: Any) -> None:
    """Log what a proof has found."""
    log.info("batching proved", **_words(batching), **figures)


def log_restriction(batching: Batching, known_by: str) -> None:
    """Log what is computed alone, if anything is."""
    if not batching.prefill:
        reason = {"reason": batching.reason, "known_by": known_by}
        log.warning("rows are computed alone", **_words(batching), **reason)


def _words(batching: Batching) -> dict[str, str]:
    words = {True: "together", False: "alone"}
    return {"prefill": words[batching.prefill], "decode": words[batching.decode]}

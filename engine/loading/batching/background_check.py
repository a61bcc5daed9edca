"""Background batch-invariance check, run while the loaded model is idle."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.engine.kv_cache.batching import Batching, restrict
from greenroom.engine.loading.batching.cached_results import store_results
from greenroom.engine.loading.batching.invariance_check import InvarianceCheck
from greenroom.schemas.logs import get_logger

PIECE = 0.3
"""Time limit in seconds of a divisible pass, and so of the delay that it may cause to a request."""

MAX_PASS_SECONDS = 10.0
"""Time limit in seconds of an indivisible pass (batched prefill, four rows of 27 tokens). A machine that
needs longer gains nothing from batched prefill.
"""

_REST = 5
"""Idle time required before a pass, as a multiple of its duration, so that few requests arrive during a pass.
The multiple grows in proportion for passes longer than `PIECE`.
"""

log = get_logger(__name__)


class BackgroundCheck:
    """Runs the check one pass at a time, and lifts the model's restriction once batching proves correct.

    Args:
        model: Model whose rows are computed alone until more is known.
        check: Incomplete check of that model.
        key: Key under which results are stored.
    """

    def __init__(self, model: Any, check: InvarianceCheck, key: str) -> None:
        self._model = model
        self._check = check
        self._key = key
        self._over = False

    @property
    def delay(self) -> float | None:
        """Seconds of idleness before the next pass; None if there is nothing left to do."""
        seconds = self._check.predict(PIECE)
        return None if self._over else _REST * seconds * max(1.0, seconds / PIECE)

    def advance(self) -> None:
        """Compute one pass; no sequence of the model may be running."""
        before = self._check.results
        self._check.advance(PIECE)
        found, batching = self._check.results, self._check.results.batching
        if found != before:
            restrict(self._model, batching)
            log_results(batching, seconds=round(self._check.seconds, 3), idle=True)
            if not self._check.failed:
                store_results(self._key, found)
        due = self._check.predict(PIECE)
        if not found.complete and due > MAX_PASS_SECONDS:
            batching = attrs.evolve(batching, reason=f"the next pass of its check would take {due:.1f} s")
        elif not found.complete:
            return
        self._over = True
        self.pause()
        log_restriction(batching, "proof")

    def pause(self) -> None:
        self._check.pause()


def log_results(batching: Batching, **figures: Any) -> None:
    log.info("batching proved", **_words(batching), **figures)


def log_restriction(batching: Batching, known_by: str) -> None:
    """Log a restriction of batching, if there is one."""
    if not batching.prefill:
        reason = {"reason": batching.reason, "known_by": known_by}
        log.warning("rows are computed alone", **_words(batching), **reason)


def _words(batching: Batching) -> dict[str, str]:
    words = {True: "together", False: "alone"}
    return {"prefill": words[batching.prefill], "decode": words[batching.decode]}

"""Sequences that cannot go on, each by itself: what is computed beside them goes on."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.problems import Problem

SequenceFailures = list[tuple[Sequence, Problem]]
"""Sequences that cannot go on, and why."""

log = structlog.get_logger(__name__)


def not_computed(sequences: Iterable[Sequence], step: str) -> SequenceFailures:
    """Return the failures of sequences for which an error was raised, which is logged; for its handler.

    Args:
        step: What was done for them.
    """
    failures: SequenceFailures = []
    for sequence in sequences:
        log.exception("request failed", request_id=sequence.request_id, step=step)
        problem = Problem(500, "internal_error", f"The prompt's {step} failed; see the server's log.")
        failures.append((sequence, problem))
    return failures

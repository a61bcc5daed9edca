"""Failures of single sequences, which do not affect the others in their batch."""

from __future__ import annotations

from collections.abc import Iterable

from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem

SequenceFailures = list[tuple[Sequence, Problem]]
"""Failed sequences with the problem of each."""

log = get_logger(__name__)


def not_computed(sequences: Iterable[Sequence], step: str) -> SequenceFailures:
    """Log the current exception and return a failure for each sequence; call it in an exception handler.

    Args:
        step: Name of the step that failed.
    """
    failures: SequenceFailures = []
    for sequence in sequences:
        log.exception("request failed", request_id=sequence.request_id, step=step)
        problem = Problem(500, "internal_error", f"The prompt's {step} failed; see the server's log.")
        failures.append((sequence, problem))
    return failures

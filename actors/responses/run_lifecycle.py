"""What may become of a run, as a table of states (notes/actors.md shows the same one)."""

from __future__ import annotations

from greenroom.schemas.events import Finished
from greenroom.schemas.problems import Problem
from greenroom.schemas.stored import ResponseStatus

_ENDS: frozenset[ResponseStatus] = frozenset({"completed", "incomplete", "failed", "cancelled"})

TRANSITIONS: dict[ResponseStatus, frozenset[ResponseStatus]] = {
    "queued": frozenset({"in_progress", "failed", "cancelled"}),
    "in_progress": _ENDS,
    "completed": frozenset({"failed"}),
    "incomplete": frozenset({"failed"}),
    "failed": frozenset(),
    "cancelled": frozenset({"failed"}),
}
"""From each state to the states that may follow it; what has ended fails yet if it cannot be stored."""


class ImpossibleTransition(Exception):
    """A run was to take a step that its life does not have."""


def check_step(before: ResponseStatus, after: ResponseStatus) -> ResponseStatus:
    """Return the next state.

    Raises:
        ImpossibleTransition: The table has no such step.
    """
    if after not in TRANSITIONS[before]:
        raise ImpossibleTransition(f"{before} to {after}")
    return after


def decide_end(finished: Finished | None, problem: Problem | None) -> ResponseStatus:
    """Return how a run ends of which this much is known: what was complete before it was cancelled is so.

    Args:
        finished: The answer's last event, if it came.
        problem: Why it failed, if it did.
    """
    if problem is not None:
        return "failed"
    if finished is None or finished.reason == "cancelled":
        return "cancelled"
    return "incomplete" if finished.reason == "length" else "completed"

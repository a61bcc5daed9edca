"""The states of a run and their transitions (also shown in notes/actors.md)."""

from __future__ import annotations

from greenroom.schemas.events.events import Finished
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
"""The states that may follow each state; an ended run still fails if it cannot be stored."""


class ImpossibleTransition(Exception):
    """An error for a transition that the table does not allow."""


def check_step(before: ResponseStatus, after: ResponseStatus) -> ResponseStatus:
    """Return the next state if the transition is allowed.

    Raises:
        ImpossibleTransition: The table has no such transition.
    """
    if after not in TRANSITIONS[before]:
        raise ImpossibleTransition(f"{before} to {after}")
    return after


def decide_end(finished: Finished | None, problem: Problem | None) -> ResponseStatus:
    """Return the final status of a run; an answer that was complete before a cancellation stays complete.

    Args:
        finished: Last event of the answer; None if it was not received.
        problem: Problem of a failed run; None otherwise.
    """
    if problem is not None:
        return "failed"
    if finished is None or finished.reason == "cancelled":
        return "cancelled"
    return "incomplete" if finished.reason == "length" else "completed"

"""Wait before status and headers are sent: later errors can only be events."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from greenroom.http.answering.streaming.event_stream import Events
from greenroom.schemas.events.events import Admitted, Failed, InferenceEvent, QueueStatus
from greenroom.schemas.problems import ProblemError

STATUS_TIMEOUT = 2.0
"""Longest wait for a status, in seconds."""


async def wait_for_first_event(events: Events, status_timeout: float) -> list[InferenceEvent]:
    """Wait for the first event of output, at most `status_timeout` seconds.

    Returns:
        The events so far.

    Raises:
        ProblemError: The request was refused, or failed before anything was sent.
    """
    received: list[InferenceEvent] = []
    with trio.move_on_after(status_timeout):
        while not received or isinstance(received[-1], QueueStatus | Admitted):
            received.append(_unless_failed(await events.receive()))
    return received


async def wait_for_admission(all_events: Sequence[Events], status_timeout: float) -> None:
    """Wait until all of several requests are admitted, at most `status_timeout` seconds.

    Raises:
        ProblemError: One of them was refused.
    """
    with trio.move_on_after(status_timeout):
        for events in all_events:
            while not isinstance(_unless_failed(await events.receive()), Admitted):
                pass


def _unless_failed(event: InferenceEvent) -> InferenceEvent:
    if isinstance(event, Failed):
        raise ProblemError(event.problem)
    return event

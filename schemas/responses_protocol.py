"""What can be asked of the responses actor, and what it answers.

A *run* is one response that is being generated and will be stored. All of it is plain data but for two
things: `record`, a pure function that writes a run in its protocol's words without the actor knowing any, and
the handles that it hands out itself (`greenroom.actors.responses.handles`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from greenroom.schemas.events import InferenceEvent
from greenroom.schemas.pool_protocol import Drain
from greenroom.schemas.problems import Problem
from greenroom.schemas.requests import InferenceRequest
from greenroom.schemas.stored import ResponseStatus, StoredResponse


@attrs.frozen
class RunStarted:
    """The run waits no longer: its prompt is being computed."""


@attrs.frozen
class Heartbeat:
    """Nothing has happened for a while; an entry of the log, so that all who read it count the same."""


@attrs.frozen
class RunEnded:
    """The last entry of a run that was stored.

    Args:
        response: As committed; its `body` ends every stream.
        problem: Why it failed, if it did.
    """

    response: StoredResponse
    problem: Problem | None = None


RunEvent = InferenceEvent | RunStarted | Heartbeat | RunEnded
"""An entry of a run's log: Admitted, RunStarted, deltas and heartbeats as they came, and as the last
one RunEnded, or Failed where nothing is stored because the request was refused."""


@attrs.frozen
class RunOutcome:
    """What became of a run, or what is known of it so far.

    Args:
        model: The model's own name, where the request used another; None if it was not found.
        events: Admitted, the answer's deltas in order, and its Finished, as far as they came; while the run
            goes on, Admitted alone.
            Deltas that follow one another may be merged in any way.
        problem: Why it failed.
        ended: Unix time in seconds; None while it goes on.
    """

    status: ResponseStatus
    model: str | None = None
    events: Sequence[InferenceEvent] = ()
    problem: Problem | None = None
    ended: float | None = None


Record = Callable[[RunOutcome], StoredResponse]
"""Writes a run as it is stored; pure, and of what is asked twice the same. Called on any thread.

`raw` of the result is what the model wrote (`Finished.raw`) or, where that never came, what its deltas tell.
`events` is left None: the actor fills it in for what runs in the background.
"""


class Hold(Protocol):
    """A claim on a conversation (`greenroom.actors.responses.handles.ConversationHeld`)."""

    def take(self) -> Hold:
        """Return the claim as the taker's own: closing this one does nothing any more."""

    def close(self) -> None:
        """Give the conversation free."""


@attrs.frozen
class HoldConversation:
    """Claim a conversation for one turn, before its history is read. Reply: ConversationHeld, or a 409."""

    owner: str
    conversation: str


@attrs.frozen(eq=False)
class StartRun:
    """Generate and store a response.

    Reply: Subscribed. Of a run in the background it comes when the request is known to fit, or after
    `patience` seconds, and behind the commit of its unfinished row; a request that is refused before is
    answered Failed, and nothing is stored. Any other run is cancelled when its last subscription closes.

    Args:
        request: With one choice.
        id: Of the response.
        owner: To whom it belongs; nobody else finds it.
        patience: Seconds that a run in the background is waited for at most before it is accepted.
        hold: On the conversation of which this is a turn. The run takes it, and closes it when it has ended.
    """

    request: InferenceRequest
    id: str
    owner: str
    record: Record
    background: bool = False
    patience: float = 0.0
    hold: Hold | None = None


@attrs.frozen
class Retrieve:
    """Ask how a response stands, that is being generated or was stored. Reply: StoredResponse."""

    id: str
    owner: str


@attrs.frozen
class Subscribe:
    """Read the events of a response in the background, from the first one. Reply: Subscribed.

    Fails with a 400 if it does not run, or did not run, in the background.
    """

    id: str
    owner: str


@attrs.frozen
class CancelRun:
    """End a response in the background. Reply: StoredResponse, when it has ended; at once if it had already.

    Fails with a 400 if it does not run in the background.
    """

    id: str
    owner: str


@attrs.frozen
class DeleteRun:
    """Delete a response; one that is being generated is cancelled first. Reply: Deleted."""

    id: str
    owner: str


AboutOne = Retrieve | Subscribe | CancelRun | DeleteRun
ResponsesMessage = HoldConversation | StartRun | AboutOne | Drain
"""Drain is answered with `Drained` when no run is left, as the pool answers it."""

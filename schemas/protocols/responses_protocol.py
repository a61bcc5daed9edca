"""The messages that the responses actor accepts, and its answers.

A *run* is a response that is being generated and will be stored. All messages are plain data, with two
exceptions: `write`, a pure function that converts a run into its protocol's form so that the actor need not
know any protocol, and the handles that the actor returns (`greenroom.actors.responses.event_log`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from greenroom.schemas.events.events import InferenceEvent, PromptProgress, QueueStatus
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.pool_protocol import Drain
from greenroom.schemas.protocols.tools_protocol import ToolLoop
from greenroom.schemas.stored import ResponseStatus, StoredResponse


@attrs.frozen
class RunStarted:
    """The start of a run's prefill."""


@attrs.frozen
class Heartbeat:
    """A log entry for a period without other events; it has the same number for all subscribers."""

    news: QueueStatus | PromptProgress | None = None


@attrs.frozen
class RunEnded:
    """The last log entry of a stored run. `response`: response as committed; its `body` ends every stream."""

    response: StoredResponse
    problem: Problem | None = None


RunEvent = InferenceEvent | RunStarted | Heartbeat | RunEnded
"""An entry of a run's log: Admitted, RunStarted, deltas and heartbeats in order, and at the end RunEnded, or
Failed if the request was refused and nothing is stored."""


@attrs.frozen
class RunOutcome:
    """The result of a run, or its present state.

    Args:
        model: The model's own name, even if the request used another; None if the model was not found.
        events: Admitted, the answer's deltas in order, and its Finished, as far as received; Admitted alone
            while the run is in progress. Consecutive deltas may be merged in any way.
        ended: Unix time of the end in seconds; None while the run is in progress.
    """

    status: ResponseStatus
    model: str | None = None
    events: Sequence[InferenceEvent] = ()
    problem: Problem | None = None
    ended: float | None = None


WriteResponse = Callable[[RunOutcome], StoredResponse]
"""A function that converts a run's outcome into its stored form. It is pure and may run on any thread.

`raw` of the result is the model's unparsed output (`Finished.raw`) or, without a Finished, the text of the
deltas. `events` is None; the actor sets it for background runs.
"""


class Lock(Protocol):
    def take(self) -> Lock:
        """Transfer the lock to the caller; closing this object has no effect afterwards."""

    def close(self) -> None:
        """Release the conversation."""


@attrs.frozen
class LockConversation:
    """Lock a conversation for one turn, before its history is read. Reply: ConversationLock, or a 409."""

    owner: str
    conversation: str


@attrs.frozen(eq=False)
class StartRun:
    """Start a run: generate and store a response.

    Reply: Subscribed. A background run replies once the request is known to fit, or after `patience` seconds,
    and after its unfinished row is committed; if the request is refused before, the reply is Failed and
    nothing is stored. Any other run is cancelled when its last subscription closes.

    Args:
        owner: Owner of the response; nobody else can find it.
        patience: Maximum wait in seconds before a background run is accepted.
        lock: Lock of the conversation that the turn belongs to. The run takes it and closes it at its end.
        limited: True if it fails after the setting `queue_timeout`.
        loop: Tools that this server calls; None for none.
    """

    request: InferenceRequest
    id: str
    owner: str
    write: WriteResponse
    background: bool = False
    patience: float = 0.0
    lock: Lock | None = None
    limited: bool = False
    loop: ToolLoop | None = attrs.field(default=None, repr=False)


@attrs.frozen
class Retrieve:
    """Retrieve a running or stored response. Reply: StoredResponse."""

    id: str
    owner: str


@attrs.frozen
class Subscribe:
    """Subscribe to a background response's events, from the first one on. Reply: Subscribed.

    Fails with a 400 if the response is not a background one.
    """

    id: str
    owner: str


@attrs.frozen
class CancelRun:
    """Cancel a background response. Reply: StoredResponse, once the response has ended.

    Fails with a 400 if the response does not run in the background.
    """

    id: str
    owner: str


@attrs.frozen
class DeleteRun:
    """Delete a response; a running one is cancelled first. Reply: Deleted."""

    id: str
    owner: str


@attrs.frozen
class Deleted:
    """Confirmation that the object is deleted."""


AboutOne = Retrieve | Subscribe | CancelRun | DeleteRun
ResponsesMessage = LockConversation | StartRun | AboutOne | Drain
"""The messages of the responses actor. Like the pool, it answers Drain with `Drained` when no run is left."""

"""The state of a streamed response, as its lifecycle events show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from greenroom.http.responses.output.response_object import (
    ResponseEcho,
    ResponseHead,
    encoded_response,
    response_members,
)
from greenroom.schemas.events.events import Admitted


class ResponseLife:
    """The state of a response while it is streamed.

    Args:
        clock: Clock with Unix time in seconds, for the time of completion.

    Attributes:
        echo: The response's echo, with the model's actual parameters once they are known.
        started: True if the first events have been sent.
        queued: True if the response waits in the background.
    """

    def __init__(self, echo: ResponseEcho, head: ResponseHead, clock: Callable[[], float]) -> None:
        self.echo = echo
        self.started = False
        self.queued = bool(echo.members["background"])
        self._head = head
        self._clock = clock
        self._dropped_messages = 0

    @property
    def state(self) -> str:
        """Status before the end: queued or in progress."""
        return "queued" if self.queued else "in_progress"

    def admit(self, admitted: Admitted) -> None:
        """Record the facts that are known once the prompt is admitted."""
        self._dropped_messages = admitted.dropped_messages
        self.echo = self.echo.answered_with(admitted.parameters)

    def encoded(self, status: str, output: Sequence[dict[str, Any]] = (), **members: Any) -> bytes:
        """Return the response as the `response` member of an event."""
        completed = int(self._clock()) if status == "completed" else None
        own = response_members(
            self._head,
            status,
            output=output,
            completed=completed,
            dropped_messages=self._dropped_messages,
            **members,
        )
        return b'"response":' + encoded_response(self.echo, own)

"""A response as the events of its life show it: what it repeats of its request, and how it stands."""

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
    """Keeps what is known of a response while it is streamed.

    Args:
        clock: Tells the Unix time in seconds at which the answer is complete.

    Attributes:
        echo: What it repeats; of the parameters, those that its model answers with, once that is known.
        begun: Its first events have been made.
        queued: It waits, in the background.
    """

    def __init__(self, echo: ResponseEcho, head: ResponseHead, clock: Callable[[], float]) -> None:
        self.echo = echo
        self.begun = False
        self.queued = bool(echo.members["background"])
        self._head = head
        self._clock = clock
        self._dropped_messages = 0

    @property
    def state(self) -> str:
        """How it stands before its end."""
        return "queued" if self.queued else "in_progress"

    def admit(self, admitted: Admitted) -> None:
        """Take in what is known when its prompt is."""
        self._dropped_messages = admitted.dropped_messages
        self.echo = self.echo.answered_with(admitted.parameters)

    def encoded(self, status: str, output: Sequence[dict[str, Any]] = (), **members: Any) -> bytes:
        """Return it as a member of an event."""
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

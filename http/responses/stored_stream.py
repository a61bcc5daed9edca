"""The stream of a response that is stored: formatted from its log, the same for all who read it."""

from __future__ import annotations

import json

from greenroom.http.responses.response_object import ResponseEcho, ResponseHead
from greenroom.http.responses.response_stream import ResponseStream
from greenroom.schemas.problems import Problem
from greenroom.schemas.responses_protocol import RunEvent
from greenroom.schemas.stored import StoredResponse


class StoredStream:
    """Formats a run's log.

    Nothing but the log counts: its own heartbeats are entries, and its end is what was stored.

    Args:
        stream: Formats what the model wrote.
    """

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream

    @property
    def content_type(self) -> str:
        """Of server-sent events."""
        return self._stream.content_type

    @property
    def finished(self) -> bool:
        """Whether the end has been formatted."""
        return self._stream.finished

    def opening(self) -> bytes:
        """Return the events that say that there is a response."""
        return self._stream.opening()

    def event(self, event: RunEvent) -> bytes:
        """Return the events of the wire for an entry."""
        return self._stream.event(event)

    def heartbeat(self) -> bytes:
        """Return nothing: whoever reads along must count what everybody counts."""
        return b""

    def failure(self, problem: Problem) -> bytes:
        """Return the end of a response that cannot be read to its end."""
        return self._stream.failure(problem)


def stream_of(stored: StoredResponse, starting_after: int, *, seals_thoughts: bool) -> StoredStream:
    """Return what formats the log of a stored response again. May take long if that repeats much.

    Args:
        starting_after: Number of the last event that the client has.
        seals_thoughts: Thoughts come with what a client gives them back by.
    """
    response = json.loads(stored.body)
    head = ResponseHead(stored.id, stored.model, response["created_at"])
    echo = ResponseEcho.of(response, seals_thoughts=seals_thoughts)
    return StoredStream(ResponseStream(echo, head, starting_after=starting_after))

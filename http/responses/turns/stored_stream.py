"""The stream of a response that is stored: formatted from its log, the same for all who read it."""

from __future__ import annotations

import json

import attrs

from greenroom.http.responses.output.response_object import ResponseEcho, ResponseHead
from greenroom.http.responses.output.response_stream import ResponseStream
from greenroom.http.responses.turns.stored_queries import StoredQuery, with_thoughts
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.responses_protocol import RunEnded, RunEvent
from greenroom.schemas.stored import StoredResponse


class StoredStream:
    """Formats a run's log.

    Nothing but the log counts: its own heartbeats are entries, and its end is what was stored.

    Args:
        stream: Formats what the model wrote.
        adds_thoughts: What was stored lacks what thoughts are given back by, and its reader asks for it.
    """

    def __init__(self, stream: ResponseStream, *, adds_thoughts: bool = False) -> None:
        self._stream = stream
        self._adds_thoughts = adds_thoughts

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
        if self._adds_thoughts and isinstance(event, RunEnded):
            event = attrs.evolve(event, response=with_thoughts(event.response))
        return self._stream.event(event)

    def heartbeat(self) -> bytes:
        """Return nothing: whoever reads along must count what everybody counts."""
        return b""

    def failure(self, problem: Problem) -> bytes:
        """Return the end of a response that cannot be read to its end."""
        return self._stream.failure(problem)


def stream_of(stored: StoredResponse, query: StoredQuery) -> StoredStream:
    """Return what formats the log of a stored response again. May take long if that repeats much.

    It is the stream that its request asked for, but for what the query says otherwise.
    """
    response = json.loads(stored.body)
    head = ResponseHead(stored.id, stored.model, response["created_at"])
    created = ResponseEcho.of(response, obfuscates=query.obfuscates)
    adds_thoughts = query.thoughts and not created.seals_thoughts
    echo = attrs.evolve(created, seals_thoughts=True) if adds_thoughts else created
    stream = ResponseStream(echo, head, starting_after=query.starting_after)
    return StoredStream(stream, adds_thoughts=adds_thoughts)

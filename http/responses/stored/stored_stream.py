"""The stream of a stored response: formatted from its log, identical for all readers."""

from __future__ import annotations

import json

import attrs

from greenroom.http.responses.output.response_object import ResponseEcho, ResponseHead
from greenroom.http.responses.output.response_stream import ResponseStream
from greenroom.http.responses.stored.stored_queries import StoredQuery, with_encrypted_reasoning
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.responses_protocol import RunEnded, RunEvent
from greenroom.schemas.stored import StoredResponse


class StoredStream:
    """Formats the log of a run as the event stream of its response.

    Only the log counts: heartbeats are entries of the log, and the end is the stored response.

    Args:
        stream: Formatter of the model's output.
        adds_encrypted: True to add encrypted content to reasoning items, which the stored form lacks.
    """

    def __init__(self, stream: ResponseStream, *, adds_encrypted: bool = False) -> None:
        self._stream = stream
        self._adds_encrypted = adds_encrypted

    @property
    def content_type(self) -> str:
        return self._stream.content_type

    @property
    def finished(self) -> bool:
        return self._stream.finished

    @property
    def has_news(self) -> bool:
        """False: news are part of the log too."""
        return False

    def opening(self) -> bytes:
        """Return nothing: the opening events are formatted with the first entry of the log."""
        return self._stream.opening()

    def event(self, event: RunEvent) -> bytes:
        if self._adds_encrypted and isinstance(event, RunEnded):
            event = attrs.evolve(event, response=with_encrypted_reasoning(event.response))
        return self._stream.event(event)

    def heartbeat(self) -> bytes:
        """Return nothing: all readers must get the same numbered events."""
        return b""

    def failure(self, problem: Problem) -> bytes:
        """Return the final events of a response that cannot be read to its end."""
        return self._stream.failure(problem)


def stream_of(stored: StoredResponse, query: StoredQuery) -> StoredStream:
    """Return a formatter of a stored response's log. May take long if the echo is large.

    The stream is the one that the request wanted, with the query's options applied.
    """
    response = json.loads(stored.body)
    head = ResponseHead(stored.id, stored.model, response["created_at"])
    created = ResponseEcho.of(response, obfuscates=query.obfuscates)
    adds_encrypted = query.encrypted and not created.encrypts_reasoning
    echo = attrs.evolve(created, encrypts_reasoning=True) if adds_encrypted else created
    stream = ResponseStream(echo, head, starting_after=query.starting_after)
    return StoredStream(stream, adds_encrypted=adds_encrypted)

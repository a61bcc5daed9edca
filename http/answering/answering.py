"""What the routes of every protocol have in common: ids, JSON and streamed responses, collected events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio
from quart import Response

from greenroom.http.answering.collected_answer import Choice
from greenroom.http.answering.event_stream import Events, EventStream
from greenroom.http.answering.json_encoding import json_bytes
from greenroom.schemas.events import (
    Failed,
    Finished,
    InferenceEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from greenroom.schemas.problems import ProblemError, internal_error

STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


def json_response(document: Any) -> Response:
    """A whole answer."""
    return Response(json_bytes(document), content_type="application/json")


def stream_response(body: EventStream) -> Response:
    """A streamed answer, which may take as long as it needs."""
    response = Response(body, headers=STREAM_HEADERS)
    response.timeout = None
    return response


async def collect(events: Events, choices: int = 1, begun: Iterable[InferenceEvent] = ()) -> list[Choice]:
    """Wait for all choices of an answer.

    Raises:
        ProblemError: The request failed.
    """
    collected = [Choice() for _ in range(choices)]
    ready = list(begun)
    while True:
        for event in ready:
            _add(event, collected)
        if all(choice.finished for choice in collected):
            return collected
        try:
            ready = [await events.receive(), *events.receive_ready()]
        except trio.EndOfChannel:
            raise ProblemError(internal_error()) from None


def _add(event: InferenceEvent, collected: list[Choice]) -> None:
    match event:
        case Failed(problem):
            raise ProblemError(problem)
        case TextDelta() | ReasoningDelta() | ToolCallDelta() | Finished():
            collected[event.index].add(event)

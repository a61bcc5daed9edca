"""HTTP responses that hold an answer: a JSON document, or a stream of events."""

from __future__ import annotations

from quart import Response

from greenroom.http.answering.event_stream import EventStream
from greenroom.http.answering.json_encoding import json_bytes


def json_response(document: object) -> Response:
    """Return a response that holds a whole answer."""
    return Response(json_bytes(document), content_type="application/json")


def stream_response(body: EventStream) -> Response:
    """Return a response whose body may take as long as it needs."""
    headers = {
        "content-type": body.content_type,
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }
    response = Response(body, headers=headers)
    response.timeout = None
    return response

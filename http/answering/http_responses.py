"""HTTP responses that hold an answer: a JSON document, or a stream of events."""

from __future__ import annotations

from collections.abc import Sequence

from quart import Response

from greenroom.http.answering.event_stream import EventStream
from greenroom.http.answering.json_encoding import json_bytes


def json_response(document: object) -> Response:
    """Return a response that holds a whole answer."""
    return Response(json_bytes(document), content_type="application/json")


def list_response(entries: Sequence[bytes], ids: Sequence[str], has_more: bool) -> Response:
    """Return a response that holds a page of a list, as OpenAI's clients read it.

    Args:
        entries: JSON of each.
        ids: Of the entries.
        has_more: More stand behind them.
    """
    ends = {"first_id": ids[0], "last_id": ids[-1]} if ids else {"first_id": None, "last_id": None}
    tail = json_bytes({**ends, "has_more": has_more})
    document = b'{"object":"list","data":[%b],%b' % (b",".join(entries), tail.removeprefix(b"{"))
    return Response(document, content_type="application/json")


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

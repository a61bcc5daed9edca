"""HTTP responses that hold an answer: a JSON document, or a stream of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio
from quart import Response

from greenroom.http.answering.encoding.json_encoding import json_bytes, json_bytes_in_pieces
from greenroom.http.answering.streaming.event_stream import EventStream

LARGE = 4_096
"""Tokens that an answer shows one by one, from which on it is put together on a thread of its own."""


def json_response(document: object) -> Response:
    """Return a response that holds a whole answer; bytes are JSON already."""
    encoded = document if isinstance(document, bytes) else json_bytes(document)
    return Response(encoded, content_type="application/json")


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


async def large_json_response(document: Callable[[], object], tokens: int) -> Response:
    """Return a response that holds a whole answer, made on another thread if it is large.

    Args:
        document: Makes it, or its JSON; must be callable from any thread.
        tokens: How many it shows one by one, as ids or with what is known of each.
    """
    if tokens < LARGE:
        return json_response(document())

    def encode() -> bytes:
        made = document()
        return made if isinstance(made, bytes) else json_bytes_in_pieces(made)

    encoded = await trio.to_thread.run_sync(encode, abandon_on_cancel=True)
    return Response(encoded, content_type="application/json")


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

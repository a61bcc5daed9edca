"""HTTP responses that hold an answer: a JSON document, or a stream of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import trio
from quart import Response
from quart.wrappers.response import DataBody

from greenroom.http.answering.encoding.json_encoding import json_bytes, json_bytes_in_pieces
from greenroom.http.answering.requests.current_request import hold_answer
from greenroom.http.answering.streaming.event_stream import EventStream
from greenroom.http.answering.streaming.paced_answer import PIECE_BYTES, PacedAnswer

LARGE_BYTES = 65_536
"""Characters that are stored, from which on they are put together on a thread of its own."""
_ENCODING = trio.CapacityLimiter(1)
"""Each takes several times its size while it is put together, and two would only compete for the GIL."""

LARGE = 4_096
"""Tokens that an answer shows one by one, from which on it is put together on a thread of its own."""


def json_response(document: object) -> Response:
    """Return a response that holds a whole answer; bytes are JSON already."""
    encoded = document if isinstance(document, bytes) else json_bytes(document)
    return Response(encoded, content_type="application/json")


async def stored_json_response(size: int, document: Callable[[], bytes]) -> Response:
    """Return a response that holds JSON made of what is stored.

    Args:
        size: In characters, of what is stored; much of it is put together on another thread, one at a time.
        document: Puts it together; must be callable from any thread.

    Raises:
        ProblemError: 503: answers that wait for their readers leave no room for it.
    """
    hold_answer(size)
    if size < LARGE_BYTES:
        return json_response(document())
    return json_response(await trio.to_thread.run_sync(document, abandon_on_cancel=True, limiter=_ENCODING))


async def list_response(
    entries: Callable[[], Iterable[bytes]], size: int, ids: Sequence[str], has_more: bool
) -> Response:
    """Return a response that holds a page of a list, as OpenAI's clients read it.

    Args:
        entries: Makes the JSON of each; must be callable from any thread.
        size: In characters, of all that is stored of them.
        ids: Of the entries.
        has_more: More stand behind them.

    Raises:
        ProblemError: 503: answers that wait for their readers leave no room for it.
    """
    ends = {"first_id": ids[0], "last_id": ids[-1]} if ids else {"first_id": "", "last_id": ""}
    tail = json_bytes({**ends, "has_more": has_more}).removeprefix(b"{")
    return await stored_json_response(
        size, lambda: b'{"object":"list","data":[%b],%b' % (b",".join(entries()), tail)
    )


def paced_response(response: Response) -> Response:
    """Return a response whose body, if it is whole and large, is counted and sent in pieces.

    Raises:
        ProblemError: 503: answers that wait for their readers leave no room for it.
    """
    body = response.response
    if isinstance(body, DataBody) and len(body.data) > PIECE_BYTES:
        hold_answer(len(body.data))
        response.response = PacedAnswer(body.data)
        response.timeout = None  # The answer itself looks at its reader's pace.
    return response


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

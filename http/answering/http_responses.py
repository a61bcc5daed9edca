"""HTTP responses for results: a JSON document, or a stream of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import trio
from quart import Response
from quart.wrappers.response import DataBody

from greenroom.http.answering.current_request import request_resources
from greenroom.http.answering.event_stream import EventStream
from greenroom.http.encoding.encoding import json_bytes, json_bytes_in_pieces
from greenroom.http.guard.byte_account import AnswerAccount
from greenroom.http.transport.socket_stream import PIECE_BYTES, PacedAnswer

LARGE = 4_096  # Number of individually listed tokens from which on a response is encoded on a worker thread


def json_response(document: object) -> Response:
    encoded = document if isinstance(document, bytes) else json_bytes(document)
    return Response(encoded, content_type="application/json")


def empty_response() -> Response:
    """Return a response without a body, and so without the type of one."""
    response = Response(b"")
    del response.headers["content-type"]
    return response


async def stored_json_response(answers: AnswerAccount, size: int, document: Callable[[], bytes]) -> Response:
    """Return a response with JSON that is built from stored data.

    Args:
        answers: Memory budget that the response is charged to until it is sent.
        size: Size of the stored data, in characters; large data is encoded on a worker thread, one at a time.
        document: Builds the JSON; must be callable from any thread.

    Raises:
        ProblemError (503): other unsent responses use up the memory budget.
    """
    answers.hold(request_resources(), size)
    return json_response(await answers.encode(size, document))


async def list_response(
    answers: AnswerAccount,
    entries: Callable[[], Iterable[bytes]],
    size: int,
    ids: Sequence[str],
    has_more: bool,
) -> Response:
    """Return a response with one page of a list, in OpenAI's format.

    Args:
        answers: See `stored_json_response`.
        entries: Builds the JSON of each entry; must be callable from any thread.
        size: Size of the stored data of all entries, in characters.
        has_more: True if entries follow this page.

    Raises:
        ProblemError (503): other unsent responses use up the memory budget.
    """
    ends = {"first_id": ids[0], "last_id": ids[-1]} if ids else {"first_id": "", "last_id": ""}
    tail = json_bytes({**ends, "has_more": has_more}).removeprefix(b"{")
    return await stored_json_response(
        answers, size, lambda: b'{"object":"list","data":[%b],%b' % (b",".join(entries()), tail)
    )


def paced_response(answers: AnswerAccount, response: Response) -> Response:
    """Return the response; a large complete body is charged to the memory budget and sent in pieces. Raises
    ProblemError (503): other unsent responses use up the memory budget.
    """
    body = response.response
    if isinstance(body, DataBody) and len(body.data) > PIECE_BYTES:
        answers.hold(request_resources(), len(body.data))
        response.response = PacedAnswer(body.data)
        response.timeout = None  # `PacedAnswer` enforces a minimum rate itself.
    return response


async def large_json_response(document: Callable[[], object], tokens: int) -> Response:
    """Return a response with a complete document, encoded on a worker thread if it is large.

    Args:
        document: Returns a JSON-like object or bytes of JSON; must be callable from any thread.
        tokens: Number of tokens that it lists individually, as ids or with log-probabilities.
    """
    if tokens < LARGE:
        return json_response(document())

    def encode() -> bytes:
        made = document()
        return made if isinstance(made, bytes) else json_bytes_in_pieces(made)

    encoded = await trio.to_thread.run_sync(encode, abandon_on_cancel=True)
    return Response(encoded, content_type="application/json")


def stream_response(body: EventStream) -> Response:
    headers = {"content-type": body.content_type, "cache-control": "no-cache", "x-accel-buffering": "no"}
    response = Response(body, headers=headers)
    response.timeout = None
    return response

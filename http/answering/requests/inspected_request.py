"""Records of requests for the inspector: their bodies, and the statuses of their responses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from quart import Response, request

from greenroom.actors.inspection.inspector import Inspector
from greenroom.http.answering.requests.current_request import request_id, request_resources

_REFUSED = 400


def inspect_body(inspector: Inspector, parts: Sequence[bytes]) -> None:
    """Record the body of the current request, or its beginning."""
    size = sum(map(len, parts))
    begun, room = list[bytes](), inspector.share
    for part in parts:
        begun.append(bytes(part[:room]))
        room -= len(begun[-1])
    inspector.begin(request_id(), f"{request.method} {request.path[:200]}", b"".join(begun), size)
    request_resources().callback(partial(inspector.close, request_id()))


async def inspect_response(inspector: Inspector, response: Response) -> None:
    """Record the status of the current response, and its body if the request was refused."""
    failure = b""
    if response.status_code >= _REFUSED:
        failure = await response.get_data(as_text=False)
    inspector.answered(request_id(), response.status_code, failure)

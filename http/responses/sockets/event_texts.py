"""Conversion of server-sent events to WebSocket messages with the same JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from greenroom.http.encoding.json_encoding import json_ascii
from greenroom.http.errors.openai_errors import error_object
from greenroom.http.errors.problem_documents import problem_headers
from greenroom.schemas.problems import Problem

_DATA = b"data: "
_DONE = b"[DONE]"
_END = b"\n\n"
_FAILED = b'{"type":"response.failed"'
_ENDS = (_FAILED, b'{"type":"response.completed"', b'{"type":"response.incomplete"')
_NOT_FOUND = "previous_response_not_found"


class EventTexts:
    """Splits the stream of one response into events.

    Attributes:
        ended: True if the last event has arrived.
        failed: True if the last event reported a failure.
    """

    def __init__(self) -> None:
        self.ended = False
        self.failed = False
        self._rest = b""

    def feed(self, data: bytes, lane: str | None) -> list[bytes]:
        """Return the events completed by this part of the stream, as JSON.

        Args:
            lane: Value of `stream_id` to add to every event, if any.
        """
        *blocks, self._rest = (self._rest + data).split(_END)
        texts = []
        for block in blocks:
            text = block[block.find(_DATA) + len(_DATA) :]
            if text == _DONE:
                continue
            if text.startswith(_ENDS):
                self.ended, self.failed = True, text.startswith(_FAILED)
            texts.append(
                text if lane is None else b"%b,%b" % (text[:-1], json_ascii({"stream_id": lane})[1:])
            )
        return texts


def error_text(problem: Problem, lane: str | None = None) -> bytes:
    """Return the error event of a message that is not answered."""
    told = problem_headers(problem)
    headers = {name: told[name] for name in ("retry-after",) if name in told}
    return _error_text(problem.status, error_object(problem), headers, lane)


def refusal_text(status: int, headers: Mapping[str, str], document: bytes, lane: str | None) -> bytes:
    """Return the error event that corresponds to an HTTP error response."""
    error = json.loads(document)["error"]
    told = {name: headers[name] for name in ("retry-after", "x-request-id") if name in headers}
    return _error_text(status, error, told, lane)


def _error_text(status: int, error: dict[str, Any], headers: Mapping[str, str], lane: str | None) -> bytes:
    if error["code"] == _NOT_FOUND:
        status = 400  # OpenAI's sockets use this status.
    event: dict[str, Any] = {"type": "error", "status": status, "error": error}
    if headers:
        event["error"] = {**error, "headers": headers}
    if lane is not None:
        event["stream_id"] = lane
    return json_ascii(event)

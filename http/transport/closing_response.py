"""Error responses that end a connection without reaching the app."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus

import attrs
from werkzeug.datastructures import Headers

from greenroom.http.errors.problem_documents import (
    ErrorMembers,
    ErrorShapes,
    no_shapes,
    problem_document,
    problem_headers,
)
from greenroom.http.transport.request_id import new_request_id, request_id_headers
from greenroom.schemas.problems import Problem

RecordRefusal = Callable[[str, str, Headers, Problem], None]
"""Records a refusal, given its id, and the path and headers of the request as far as they are known."""


def no_record(_request_id: str, _path: str, _headers: Headers, _problem: Problem) -> None:
    """Record nothing."""


@attrs.frozen
class ClosingResponses:
    """Makes the error responses of requests that do not reach the app, and records each.

    Args:
        error_shapes: Error formats by protocol.
        record: Callback for each response; must not block.
    """

    error_shapes: ErrorShapes = no_shapes
    record: RecordRefusal = no_record

    def refuse(self, problem: Problem, path: str, headers: Headers, with_body: bool = True) -> bytes:
        """Return the response to a request with this path and these headers, as far as they are known."""
        request_id = new_request_id()
        self.record(request_id, path, headers, problem)
        return closing_response(problem, self.error_shapes(path, headers), with_body, request_id)


NO_RECORDS = ClosingResponses()
"""Plain responses, of which no record is kept."""


def closing_response(
    problem: Problem, error_members: ErrorMembers, with_body: bool, request_id: str
) -> bytes:
    """Return a complete error response after which the connection closes.

    Args:
        error_members: A protocol's members of the error document.
        with_body: False for a HEAD request, whose response has no body.
    """
    body = problem_document(problem, request_id, error_members)
    headers = {
        **problem_headers(problem),
        **request_id_headers(request_id),
        "content-length": str(len(body)),
        "date": formatdate(usegmt=True),
        "connection": "close",
    }
    phrase = HTTPStatus(problem.status).phrase
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {problem.status} {phrase}\r\n{head}\r\n".encode() + (body if with_body else b"")

"""Error responses that end a connection without reaching the app."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus

from greenroom.http.errors.problem_documents import ErrorMembers, problem_document, problem_headers
from greenroom.http.transport.request_id import new_request_id, request_id_headers
from greenroom.schemas.problems import Problem


def closing_response(problem: Problem, error_members: ErrorMembers, with_body: bool = True) -> bytes:
    """Return a complete error response after which the connection closes.

    Args:
        error_members: A protocol's members of the error document.
        with_body: False for a HEAD request, whose response has no body.
    """
    request_id = new_request_id()
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

"""A problem as the last response of a connection, for what never reaches the app."""

from __future__ import annotations

from greenroom.http.answering.problem_documents import ErrorMembers, problem_document, problem_headers
from greenroom.http.transport.request_id import new_request_id
from greenroom.schemas.problems import Problem


def closing_response(problem: Problem, error_members: ErrorMembers) -> tuple[dict[str, str], bytes]:
    """Return headers and body of a response after which the connection closes.

    Args:
        error_members: What a protocol adds to the document.
    """
    request_id = new_request_id()
    body = problem_document(problem, request_id, error_members)
    headers = {
        **problem_headers(problem),
        "x-request-id": request_id,
        "content-length": str(len(body)),
        "connection": "close",
    }
    return headers, body

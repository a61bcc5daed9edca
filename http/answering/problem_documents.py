"""The one place where errors become HTTP: RFC 7807 documents that also carry OpenAI's `error` object."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import structlog
from quart import Response
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, RequestedRangeNotSatisfiable

from greenroom.schemas.problems import Problem, ProblemError, internal_error

log = structlog.get_logger(actor="http")

CONTENT_TYPE = "application/problem+json"

WORTH_RETRYING = frozenset({"model_crashed", "queue_full", "draining", "too_many_connections"})
"""Server errors that may be gone a moment later; of any other an SDK would only repeat the wait."""

HTTP_CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "body_too_large",
    415: "unsupported_media_type",
}


def openai_error(problem: Problem) -> dict[str, Any]:
    """The `error` object of OpenAI's API; all four keys are always there."""
    if problem.status < 500:
        kind = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}.get(
            problem.status, "invalid_request_error"
        )
    else:
        kind = "server_error"
    return {"message": problem.detail, "type": kind, "param": problem.param, "code": problem.code}


def problem_document(problem: Problem, request_id: str | None = None) -> bytes:
    """The document that every error response carries."""
    document = {
        "type": f"urn:greenroom:problem:{problem.code}",
        "title": _title(problem.status),
        "status": problem.status,
        "detail": problem.detail,
        "instance": f"urn:greenroom:request:{request_id}" if request_id else None,
        "error": openai_error(problem),
    }
    return json.dumps({name: value for name, value in document.items() if value is not None}).encode()


def problem_headers(problem: Problem) -> dict[str, str]:
    """What a client needs to know about when to try again."""
    headers = {"content-type": CONTENT_TYPE}
    if problem.retry_after is not None:
        headers["retry-after"] = str(problem.retry_after)
    if problem.status >= 500 and problem.code not in WORTH_RETRYING:
        headers["x-should-retry"] = "false"
    return headers


def problem_response(problem: Problem, request_id: str | None = None) -> Response:
    """An error as a response."""
    return Response(
        problem_document(problem, request_id), status=problem.status, headers=problem_headers(problem)
    )


def answer_errors(app: QuartTrio, current_id: Any) -> None:
    """Let every exception of the app become a problem document.

    Args:
        current_id: Tells the id of the request that is being answered.
    """

    async def refused(error: ProblemError) -> Response:
        return problem_response(error.problem, current_id())

    async def http_error(error: HTTPException) -> Response:
        response = problem_response(_as_problem(error), current_id())
        for name, value in error.get_headers():
            if name.lower() not in ("content-type", "content-length"):
                response.headers[name] = value
        return response

    async def crashed(error: Exception) -> Response:
        log.error("request crashed", request_id=current_id(), exc_info=error)
        return problem_response(internal_error(), current_id())

    app.register_error_handler(ProblemError, refused)
    app.register_error_handler(HTTPException, http_error)
    app.register_error_handler(Exception, crashed)


def _as_problem(error: HTTPException) -> Problem:
    status = error.code or 500
    if isinstance(error, RequestedRangeNotSatisfiable) or status not in HTTP_CODES:
        return Problem(status, "http_error", f"{_title(status)}.")
    details = {
        404: "There is no such path here.",
        405: "This path does not take that method.",
        408: "The body did not arrive in time.",
        413: "The body is larger than this server takes.",
    }
    return Problem(status, HTTP_CODES[status], details.get(status, f"{_title(status)}."))


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"

"""Exceptions of the application as error responses in the format of the request's protocol."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import attrs
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, RequestedRangeNotSatisfiable

from greenroom.http.answering.audit.audited_request import audited_request
from greenroom.http.answering.protocols.absent_paths import what_is_instead
from greenroom.http.answering.protocols.wire_protocol import WireProtocol, protocol_of
from greenroom.http.answering.requests.current_request import request_id
from greenroom.http.errors.problem_documents import problem_document, problem_headers, status_phrase
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError, internal_error

log = get_logger(actor="http")

_LONGEST_PATH = 100
"""Characters of a path that are compared with the known paths."""

HTTP_CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "body_too_large",
    415: "unsupported_media_type",
}

DETAILS = {
    404: "This path does not exist here.",
    405: "This path does not support that method.",
    408: "The body did not arrive in time.",
    413: "The body is larger than this server takes.",
}


def answer_errors(app: QuartTrio, protocols: Sequence[WireProtocol]) -> Callable[[Problem], Response]:
    """Register error handlers for every exception, and return the function that formats a problem.

    Args:
        protocols: Protocols that format errors for their own clients and paths; the first one is the default.
    """

    def respond(problem: Problem) -> Response:
        if (audited := audited_request()) is not None:
            audited.record_problem(problem)
        members = protocol_of(request.path, request.headers, protocols).error_members
        document = problem_document(problem, request_id(), members)
        return Response(document, status=problem.status, headers=problem_headers(problem))

    async def on_problem(error: ProblemError) -> Response:
        return respond(error.problem)

    async def on_http_error(error: HTTPException) -> Response:
        problem = _problem(error)
        if error.code == 404 and (hint := _hint(request.path, known_paths(app))) is not None:
            problem = attrs.evolve(problem, detail=f"{problem.detail} {hint}")
        response = respond(problem)
        for name, value in error.get_headers():
            if name.lower() not in ("content-type", "content-length"):
                response.headers[name] = value
        return response

    async def on_crash(error: Exception) -> Response:
        log.error("request crashed", request_id=request_id(), exc_info=error)
        return respond(internal_error())

    app.register_error_handler(ProblemError, on_problem)
    app.register_error_handler(HTTPException, on_http_error)
    app.register_error_handler(Exception, on_crash)
    return respond


def known_paths(app: QuartTrio) -> list[str]:
    """Return the application's paths that have no parameters."""
    return [rule.rule for rule in app.url_map.iter_rules() if "<" not in rule.rule]


def nearest_path(path: str, known: Sequence[str]) -> str | None:
    """Return the path that a client probably meant: most often it omitted `/v1`, or wrote it twice."""
    path = path.rstrip("/")[:_LONGEST_PATH]
    for meant in (f"/v1{path}", path.replace("/v1/v1/", "/v1/"), path.removeprefix("/v1")):
        if meant in known:
            return meant
    return next(iter(difflib.get_close_matches(path, known, 1, 0.8)), None)


def _hint(path: str, known: Sequence[str]) -> str | None:
    if (instead := what_is_instead(path)) is not None:
        return instead
    meant = nearest_path(path, known)
    return None if meant is None else f"Did you mean `{meant}`?"


def _problem(error: HTTPException) -> Problem:
    status = error.code or 500
    phrase = f"{status_phrase(status)}."
    if isinstance(error, RequestedRangeNotSatisfiable) or status not in HTTP_CODES:
        return Problem(status, "http_error", phrase)
    return Problem(status, HTTP_CODES[status], DETAILS.get(status, phrase))

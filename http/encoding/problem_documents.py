"""Errors as RFC 9457 documents that also carry the members a protocol's clients expect."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from werkzeug.datastructures import Headers

from greenroom.http.encoding.encoding import data_event
from greenroom.http.guard.content_encoding import UNSUPPORTED_ENCODING, taken_encodings
from greenroom.schemas.problems import Problem

CONTENT_TYPE = "application/problem+json"

WORTH_RETRYING = frozenset(
    {
        "device_lost",
        "draining",
        "images_waiting",
        "model_crashed",
        "not_ready",
        "queue_full",
        "queue_timeout",
        "responses_crashed",
        "store_busy",
        "too_many_answers",
        "too_many_background_responses",
        "too_many_bodies",
        "too_many_connections",
        "too_many_fetches",
        "too_many_uploads",
    }
)
"""Codes of server errors that may pass within moments; retrying any other only repeats the wait."""

ErrorMembers = Callable[[Problem, str | None], Mapping[str, Any]]
"""Returns a protocol's own members of an error document, given the problem and the request's id."""


ErrorShapes = Callable[[str, Headers], ErrorMembers]
"""Returns the error members for a request, given its path and headers as far as they are known."""


def no_members(_problem: Problem, _request_id: str | None) -> Mapping[str, Any]:
    """Return no members: the document is plain RFC 9457."""
    return {}


def no_shapes(_path: str, _headers: Headers) -> ErrorMembers:
    """Return `no_members` for every request."""
    return no_members


def problem_document(
    problem: Problem, request_id: str | None = None, error_members: ErrorMembers = no_members
) -> bytes:
    """Return the body of an error response; a protocol's members override RFC 9457's."""
    document = {
        "type": f"urn:greenroom:problem:{problem.code}",
        "title": status_phrase(problem.status),
        "status": problem.status,
        "detail": problem.detail,
        "instance": f"urn:greenroom:request:{request_id}" if request_id else None,
        **dict(problem.members),
        **error_members(problem, request_id),
    }
    return json.dumps({name: value for name, value in document.items() if value is not None}).encode()


def problem_headers(problem: Problem) -> dict[str, str]:
    """Return the headers of an error response, which tell clients whether or when to retry."""
    headers = {"content-type": CONTENT_TYPE}
    if problem.status >= 500 and problem.code not in WORTH_RETRYING:
        headers["x-should-retry"] = "false"
    elif problem.retry_after is not None:
        headers["retry-after"] = str(problem.retry_after)
    if problem.status == 401:
        headers["www-authenticate"] = "Bearer"  # RFC 9110, section 15.5.2
    if problem.code == UNSUPPORTED_ENCODING:
        headers["accept-encoding"] = ", ".join(taken_encodings())  # RFC 9110, section 15.5.16
    return headers


def status_phrase(status: int) -> str:
    """Return the reason phrase of an HTTP status, e.g. `Not Found`."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def error_members(problem: Problem, _request_id: str | None) -> dict[str, Any]:
    return {"error": error_object(problem)}


def error_object(problem: Problem) -> dict[str, Any]:
    """Return the `error` object of OpenAI's API; all four keys are always there."""
    if problem.status < 500:
        kind = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}.get(
            problem.status, "invalid_request_error"
        )
    else:
        kind = "server_error"
    return {"message": problem.detail, "type": kind, "param": problem.param, "code": problem.code}


def error_event(problem: Problem) -> bytes:
    """Return the server-sent event that ends a stream of typed events after a failure."""
    return data_event({"type": "error", "error": error_object(problem)})


class AnswerCutError(Exception):
    """An error after which a started response is cut off, since its format cannot express a failure."""

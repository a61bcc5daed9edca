"""OpenAI's error format."""

from __future__ import annotations

from typing import Any

from greenroom.http.encoding.server_sent_events import data_event
from greenroom.schemas.problems import Problem


def error_members(problem: Problem, _request_id: str | None) -> dict[str, Any]:
    """Return the members of an error document that OpenAI's clients read."""
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

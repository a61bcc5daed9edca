"""Anthropic's error format."""

from __future__ import annotations

from typing import Any

from greenroom.http.errors.problem_documents import WORTH_RETRYING
from greenroom.schemas.problems import Problem

_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

_CODES = {"thread": "thread_unsupported_request"}
"""Unsupported parameter -> error code at which clients repeat the request without it."""


def error_members(problem: Problem, request_id: str | None) -> dict[str, Any]:
    """Return the members of an error document for Anthropic's clients; in a stream they are all of it."""
    code = problem.code
    if code == "unsupported_parameter":
        code = _CODES.get(problem.param or "", code)
    details = {"error_code": code, "param": problem.param}
    error = {"type": error_type(problem), "message": problem.detail, "details": details}
    return {"type": "error", "error": error, "request_id": request_id}


def error_type(problem: Problem) -> str:
    if problem.code in WORTH_RETRYING and problem.status == 503:
        return "overloaded_error"
    return _TYPES.get(problem.status, "invalid_request_error" if problem.status < 500 else "api_error")

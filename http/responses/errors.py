"""Error documents of the Responses API: OpenAI's, with `input` in place of `messages`."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.http.errors import openai_errors
from greenroom.schemas.problems import Problem


def error_members(problem: Problem, request_id: str | None) -> dict[str, Any]:
    """Return the members of an error document for clients of the Responses API."""
    if problem.param == "messages" and problem.code != "invalid_value":
        # Checks after parsing know only messages, not items.
        problem = attrs.evolve(problem, param="input")
    return openai_errors.error_members(problem, request_id)

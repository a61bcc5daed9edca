"""The shape of errors: OpenAI's, about items instead of messages."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.http.errors import openai_errors
from greenroom.schemas.problems import Problem


def error_members(problem: Problem, request_id: str | None) -> dict[str, Any]:
    """Return what an error document carries for clients of responses."""
    if problem.param == "messages" and problem.code != "invalid_value":
        # What is found behind the parser knows of messages alone.
        problem = attrs.evolve(problem, param="input")
    return openai_errors.error_members(problem, request_id)

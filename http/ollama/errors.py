"""Ollama's error format."""

from __future__ import annotations

from greenroom.schemas.problems import Problem


def error_members(problem: Problem, _request_id: str | None) -> dict[str, str]:
    """Return the members of an error document that Ollama's clients read."""
    return {"error": problem.detail}

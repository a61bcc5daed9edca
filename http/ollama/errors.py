"""The shape of Ollama's errors."""

from __future__ import annotations

from greenroom.schemas.problems import Problem


def error_members(problem: Problem, _request_id: str | None) -> dict[str, str]:
    """Return what an error document carries for Ollama's clients."""
    return {"error": problem.detail}

"""The runs that are under way, and the conversations that are busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from greenroom.actors.responses.handles import ConversationHeld
from greenroom.actors.responses.run import Run
from greenroom.schemas.problems import Problem, ProblemError, conversation_in_use

MAX_BACKGROUND_RUNS = 64
"""Responses in the background that may be under way at once, waiting ones included. Each keeps its events in
memory; those that a client waits for are bounded by the connections."""


class Runs:
    """All runs that have not ended, found by their id and owner."""

    def __init__(self) -> None:
        self._by_id: dict[tuple[str, str], Run] = {}
        self._busy: set[tuple[str, str]] = set()

    def __iter__(self) -> Iterator[Run]:
        return iter([*self._by_id.values()])

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, run: Run) -> None:
        """Keep a run until it has ended.

        Raises:
            ProblemError: 503 if too many are in the background; 400 if there is one of that id.
        """
        asked = run.asked
        if asked.background and sum(other.asked.background for other in self) >= MAX_BACKGROUND_RUNS:
            raise ProblemError(_too_many_runs())
        if (asked.owner, asked.id) in self._by_id:
            raise ProblemError(
                Problem(400, "invalid_value", f"The response '{asked.id}' exists already.", "id")
            )
        self._by_id[asked.owner, asked.id] = run

    def find(self, owner: str, response: str) -> Run | None:
        """Return a run, if it is under way and belongs to that owner."""
        return self._by_id.get((owner, response))

    def remove(self, run: Run) -> None:
        """Forget a run that has ended."""
        self._by_id.pop((run.asked.owner, run.asked.id), None)

    def hold(
        self, owner: str, conversation: str, on_release: Callable[[], None] = lambda: None
    ) -> ConversationHeld:
        """Claim a conversation for one turn.

        Args:
            on_release: Is called when the conversation is free again.

        Raises:
            ProblemError: 409 while another turn has it.
        """
        if (owner, conversation) in self._busy:
            raise ProblemError(conversation_in_use(conversation))
        self._busy.add((owner, conversation))

        def release(name: str) -> None:
            self._busy.discard((owner, name))
            on_release()

        return ConversationHeld(conversation, release)


def _too_many_runs() -> Problem:
    detail = f"{MAX_BACKGROUND_RUNS} responses are already being generated in the background."
    return Problem(503, "too_many_background_responses", detail, "background", retry_after=5)

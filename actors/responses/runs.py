"""The runs in progress, and the locked conversations."""

from __future__ import annotations

from collections.abc import Iterator

from greenroom.actors.core.pot import Pot
from greenroom.actors.responses.handles import ConversationLock
from greenroom.actors.responses.run import Run
from greenroom.schemas.problems import Problem, ProblemError, conversation_in_use

MAX_BACKGROUND_RUNS = 64
"""Maximum number of background runs at once, including waiting ones. Each keeps its events in memory; the
number of other runs is limited by the connections. Each client has its share of them."""


class Runs:
    """All runs that have not ended, by id and owner."""

    def __init__(self) -> None:
        self._by_id: dict[tuple[str, str], Run] = {}
        self._busy: set[tuple[str, str]] = set()
        self._background = Pot(MAX_BACKGROUND_RUNS)

    def __iter__(self) -> Iterator[Run]:
        return iter([*self._by_id.values()])

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, run: Run) -> None:
        """Add a run until it has ended.

        Raises:
            ProblemError: 503 if its client has too many background runs; 400 if the id is in use.
        """
        message = run.message
        client = message.request.client
        if message.background and self._background.room(client) <= 0:
            raise ProblemError(_too_many_runs(self._background.held(client)))
        if (message.owner, message.id) in self._by_id:
            raise ProblemError(
                Problem(400, "invalid_value", f"The response '{message.id}' exists already.", "id")
            )
        self._by_id[message.owner, message.id] = run
        if message.background:
            self._background.take(client)

    def find(self, owner: str, response: str) -> Run | None:
        """Return the owner's run with this response id; None if it is not in progress."""
        return self._by_id.get((owner, response))

    def remove(self, run: Run) -> None:
        message = run.message
        if self._by_id.pop((message.owner, message.id), None) is not None and message.background:
            self._background.give_back(message.request.client)

    def lock(self, owner: str, conversation: str) -> ConversationLock:
        """Lock a conversation for one turn.

        Raises:
            ProblemError: 409 while another turn holds the lock.
        """
        if (owner, conversation) in self._busy:
            raise ProblemError(conversation_in_use(conversation))
        self._busy.add((owner, conversation))
        return ConversationLock(conversation, lambda name: self._busy.discard((owner, name)))


def _too_many_runs(own: int) -> Problem:
    detail = (
        f"{own} responses of yours are already being generated in the background; "
        f"all clients together may have {MAX_BACKGROUND_RUNS}, and one alone not all of them."
    )
    return Problem(503, "too_many_background_responses", detail, "background", retry_after=5)

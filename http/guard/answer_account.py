"""The bytes of whole answers that wait for their readers: bounded, as the bodies of requests are."""

from __future__ import annotations

from contextlib import ExitStack

from greenroom.http.guard.byte_account import ByteAccount
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings import MEGABYTE

ANSWER_BYTES = 96 * MEGABYTE
"""What whole answers may hold together: as much as the bodies of requests."""


class AnswerAccount:
    """Counts whole answers from when their size is known until they are sent, or their reader leaves."""

    def __init__(self) -> None:
        detail = "Answers that wait for their readers hold as much as this server keeps of them. Try again."
        self._account = ByteAccount(ANSWER_BYTES, Problem(503, "too_many_answers", detail, retry_after=1))
        self._known: set[ExitStack] = set()

    def hold(self, resources: ExitStack, size: int) -> None:
        """Count a request's answer.

        Args:
            resources: Closed when the request has ended; until then the answer counts.
            size: In bytes; an answer that is told again counts once.

        Raises:
            ProblemError: 503: other answers leave no room for it.
        """
        self._account.hold(resources, size)
        if resources not in self._known:
            self._known.add(resources)
            resources.callback(self._release, resources)

    def _release(self, resources: ExitStack) -> None:
        self._known.discard(resources)
        self._account.release(resources)

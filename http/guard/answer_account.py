"""Memory budget of complete responses that are not sent yet."""

from __future__ import annotations

from contextlib import ExitStack

from greenroom.http.guard.byte_account import ByteAccount
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings.settings import MEGABYTE

ANSWER_BYTES = 96 * MEGABYTE
"""Bytes that all unsent responses may take together, about as many as request bodies may."""


class AnswerAccount:
    """Counts complete responses from the moment their size is known until they are sent or abandoned."""

    def __init__(self) -> None:
        detail = "Answers that wait for their readers hold as much as this server keeps of them. Try again."
        self._account = ByteAccount(ANSWER_BYTES, Problem(503, "too_many_answers", detail, retry_after=1))
        self._known: set[ExitStack] = set()

    def hold(self, resources: ExitStack, size: int) -> None:
        """Charge a request's response.

        Args:
            resources: Resources of the request; the charge is released when they close.
            size: Size in bytes; a repeated charge replaces a smaller one instead of adding to it.

        Raises:
            ProblemError: 503: other unsent responses use up the memory budget.
        """
        self._account.hold(resources, size)
        if resources not in self._known:
            self._known.add(resources)
            resources.callback(self._release, resources)

    def _release(self, resources: ExitStack) -> None:
        self._known.discard(resources)
        self._account.release(resources)

"""Memory budget of complete responses that are not sent yet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import trio

from greenroom.http.guard.byte_account import ByteAccount
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings.setting_fields import MEGABYTE

ANSWER_BYTES = 96 * MEGABYTE
"""Bytes that all unsent responses may take together, about as many as request bodies may."""
_LARGE_SIZE = 65_536
"""Size of stored data, in characters, from which on its JSON is built on a worker thread."""


class AnswerAccount:
    """Counts complete responses from the moment their size is known until they are sent or abandoned.

    Args:
        most: Limit on the bytes of all of them together; None for `ANSWER_BYTES`.
    """

    def __init__(self, most: int | None = None) -> None:
        detail = "Answers that clients have not read yet use all the memory for answers. Try again."
        problem = Problem(503, "too_many_answers", detail, retry_after=1)
        self._account = ByteAccount(most or ANSWER_BYTES, problem)
        self._known: set[ExitStack] = set()
        # Encoding takes several times a response's size in memory, and two jobs would fight for the GIL.
        self._encoding = trio.CapacityLimiter(1)

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

    async def encode(self, size: int, document: Callable[[], bytes]) -> bytes:
        """Return JSON that is built from stored data, on a worker thread if that is large.

        Args:
            size: Size of the stored data, in characters.
            document: Builds the JSON; must be callable from any thread.
        """
        if size < _LARGE_SIZE:
            return document()
        return await trio.to_thread.run_sync(document, abandon_on_cancel=True, limiter=self._encoding)

    def _release(self, resources: ExitStack) -> None:
        self._known.discard(resources)
        self._account.release(resources)

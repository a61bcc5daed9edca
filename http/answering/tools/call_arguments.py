"""Arguments of calls in a conversation's history, which templates get decoded."""

from __future__ import annotations

import math

from greenroom.http.guard.json_counter import JsonCounter
from greenroom.schemas.problems import ProblemError, invalid


class ArgumentCheck:
    """Refuses the calls of one request with more in their arguments than a body may hold."""

    def __init__(self) -> None:
        # What is too deep to decode stays text, as does other nonsense that a model has written.
        self._counter = JsonCounter(max_depth=math.inf)

    def check(self, arguments: str, field: str) -> None:
        """Count what the arguments of the next call hold.

        Raises:
            ProblemError: 400 that names the field.
        """
        self._counter.begin_document()
        try:
            self._counter.feed(arguments.encode("utf-8", "surrogatepass"))
        except ProblemError as error:
            raise invalid(f"`{field}` is too much: {error.problem.detail}", field) from None

"""Limits on the arguments of past tool calls, which are decoded for chat templates."""

from __future__ import annotations

import math

from greenroom.http.guard.json_counter import JsonCounter
from greenroom.schemas.problems import ProblemError, invalid


class ArgumentCheck:
    """Refuses past calls whose arguments together exceed the limits on a JSON body."""

    def __init__(self) -> None:
        # Arguments that are too deep to decode stay text, like any other invalid JSON from a model.
        self._counter = JsonCounter(max_depth=math.inf)

    def check(self, arguments: str, field: str) -> None:
        """Count the JSON values in the arguments of the next call.

        Raises:
            ProblemError: 400 that names the field.
        """
        self._counter.begin_document()
        try:
            self._counter.feed(arguments.encode("utf-8", "surrogatepass"))
        except ProblemError as error:
            raise invalid(f"`{field}` is too much: {error.problem.detail}", field) from None

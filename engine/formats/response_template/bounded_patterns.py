"""Regular expressions from a model's folder, searched under a time limit.

The library `regex` compiles them; its searches take a timeout and then raise `TimeoutError`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

_LONGEST_SEARCH = 0.1
"""Limit on one search in seconds."""
_MAX_LENGTH = 1_000
"""Limit on the characters of an expression."""
_MAX_DEPTH = 8
"""Limit on nested groups: the time to compile an expression doubles with each."""


def is_cheap_to_compile(pattern: str) -> bool:
    """Return whether an expression is short and its groups are not nested deep."""
    depth = deepest = 0
    escaped = False
    for character in pattern:
        if not escaped:
            depth += (character == "(") - (character == ")")
            deepest = max(deepest, depth)
        escaped = character == "\\" and not escaped
    return len(pattern) <= _MAX_LENGTH and deepest <= _MAX_DEPTH


class PatternBudget:
    """The time budget of all searches of one answer.

    Args:
        seconds: CPU time at the start.
        seconds_per_character: Further time for each character of the answer.

    Attributes:
        is_exceeded: True once a search took too long.
    """

    def __init__(self, seconds: float, seconds_per_character: float = 0.0) -> None:
        self._left = seconds
        self._per_character = seconds_per_character
        self.is_exceeded = False

    def extend(self, characters: int) -> None:
        """Add the time for a further piece of text."""
        self._left += characters * self._per_character

    def spend(self, search: Callable[[float], T]) -> T:
        """Run a search within the remaining time; return its result.

        Raises:
            TimeoutError: The search took too long, or no time is left.
        """
        began = time.thread_time()
        try:
            if self._left <= 0:
                raise TimeoutError
            return search(min(self._left, _LONGEST_SEARCH))
        except TimeoutError:
            self.is_exceeded = True
            raise TimeoutError("its expressions take too long") from None
        finally:
            self._left -= time.thread_time() - began


class BoundedPattern:
    """A compiled expression whose searches are charged to a budget."""

    def __init__(self, pattern: Any, budget: PatternBudget) -> None:
        self._pattern = pattern
        self._budget = budget

    def search(self, text: str, position: int = 0, **options: Any) -> Any:
        """Return the first match from a position on; None if there is none.

        Raises:
            TimeoutError: The search took too long.
        """
        return self._budget.spend(
            lambda limit: self._pattern.search(text, position, timeout=limit, **options)
        )

    def finditer(self, text: str) -> Iterator[Any]:
        """Return all matches.

        Raises:
            TimeoutError: The search took too long.
        """
        return iter(self._budget.spend(lambda limit: list(self._pattern.finditer(text, timeout=limit))))

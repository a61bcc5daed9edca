"""Preparing a request bit by bit, so that others of the same thread need not wait for all of it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

WAITS = "waits"
"""What is yielded where something else works for the request, so that its like may go on meanwhile."""

Slices = Generator[str | None, None, T]
"""Yields wherever it can be left for a while, or for good, and returns what it has made."""


def run_slices(slices: Slices[T]) -> T:
    """Return what slices make, without a pause."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            made: T = end.value
            return made

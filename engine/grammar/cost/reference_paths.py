"""Traversal order and depth of a compiler that recurses along references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from greenroom.engine.grammar.cost import limits


class PathTooLongError(Exception):
    """References nest deeper than `limits.MAX_PATH` levels."""


def references_in_order(
    start: Iterable[tuple[str, int]], references_of: Callable[[str], Iterable[tuple[str, int]]]
) -> list[str]:
    """Return all referenced names, each after the names it refers to, except in cycles.

    Args:
        start: Names that the outermost definition refers to, each with its number of enclosing levels.
        references_of: Function that returns the same for a named definition.

    Raises:
        PathTooLongError: Compilation would recurse too deep.
    """
    seen: set[str] = set()
    finished: list[str] = []
    path: list[tuple[str, int, Iterator[tuple[str, int]]]] = [("", 0, iter(start))]
    while path:
        name, level, references = path[-1]
        following = next(((found, below) for found, below in references if found not in seen), None)
        if following is None:
            path.pop()
            finished.append(name)
            continue
        found, below = following
        deeper = level + below + 1
        if deeper > limits.MAX_PATH:
            raise PathTooLongError
        seen.add(found)
        path.append((found, deeper, iter(references_of(found))))
    return finished[:-1]

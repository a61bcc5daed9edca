"""A cache of compiled constraints, since agents send the same ones repeatedly."""

from __future__ import annotations

from collections import OrderedDict

import attrs

from greenroom.engine.grammar.matching.compiled_constraint import CompiledConstraint


@attrs.define
class ConstraintCache:
    """An LRU cache of compiled constraints.

    Args:
        most: Limit on the number of entries.
        most_seconds: Limit on the entries' total compile time, in seconds. It stands for their size, which
            llguidance does not report; one second is about 80 MB.
    """

    most: int = 64
    most_seconds: float = 3.0
    _entries: OrderedDict[bytes, tuple[CompiledConstraint, float]] = attrs.field(
        factory=OrderedDict, init=False
    )
    _seconds: float = attrs.field(default=0.0, init=False)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> CompiledConstraint | None:
        """Return the entry of a key and mark it as most recently used."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key: bytes, compiled: CompiledConstraint, seconds: float) -> None:
        """Insert a constraint with its compile time in seconds; evict the least recently used ones."""
        self._entries[key] = (compiled, seconds)
        self._seconds += seconds
        while len(self._entries) > self.most or self._seconds > self.most_seconds:
            _, (_, evicted) = self._entries.popitem(last=False)
            self._seconds -= evicted

"""A cache of compiled constraints: an agent sends the same ones again and again."""

from __future__ import annotations

from collections import OrderedDict

import attrs

from greenroom.engine.grammar.matching.compiled_constraint import CompiledConstraint


@attrs.define
class ConstraintCache:
    """The constraints that were used last.

    Args:
        most: How many are kept.
        most_seconds: How long all of them took to compile. llguidance does not tell how large they are; what
            takes a second has some 80 MB.
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
        """Return what is kept under a key, as the one that is evicted last."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key: bytes, compiled: CompiledConstraint, seconds: float) -> None:
        """Keep a constraint that took so long to compile, instead of those that were not used for longest."""
        self._entries[key] = (compiled, seconds)
        self._seconds += seconds
        while len(self._entries) > self.most or self._seconds > self.most_seconds:
            _, (_, evicted) = self._entries.popitem(last=False)
            self._seconds -= evicted

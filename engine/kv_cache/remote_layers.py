"""Stand-ins, in caches here, for the layers that other processes compute: each change is repeated there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

Operation = tuple[Any, ...]
"""An operation on caches: its name, the number of its result if it has one, then its arguments."""


class RemoteCaches:
    """The caches and stored tensors of other processes, by numbers.

    Args:
        kinds: Names of the classes of the other processes' layers.
    """

    def __init__(self, kinds: frozenset[str]) -> None:
        self.kinds = kinds
        self._operations: list[Operation] = []
        self._dropped: list[int] = []
        self._numbers = 0

    def emit(self, name: str, *arguments: Any) -> None:
        self._operations.append((name, *arguments))

    def create(self, kind: Callable[[RemoteCaches, int], T], name: str, *arguments: Any) -> T:
        """Emit an operation with a result, and return its stand-in. The result is dropped with that."""
        self._numbers += 1
        made = kind(self, self._numbers)
        weakref.finalize(made, self._dropped.append, self._numbers)
        self.emit(name, self._numbers, *arguments)
        return made

    def pop_operations(self) -> list[Operation]:
        """Return the operations since the last call, with those that drop what nothing refers to here."""
        operations, self._operations = self._operations, []
        count = len(self._dropped)
        dropped, self._dropped[:count] = tuple(self._dropped[:count]), []
        return [*operations, ("drop", dropped)] if dropped else operations


class RemoteLayers:
    """The other processes' layers of one cache, in a list of layers; has the methods of mlx-lm's classes."""

    nbytes = 8  # of the number alone; the other processes account for their own
    state: tuple[()] = ()

    def __init__(self, remote: RemoteCaches, number: int) -> None:
        self.remote, self.number = remote, number

    @classmethod
    def new(cls, remote: RemoteCaches) -> RemoteLayers:
        return remote.create(cls, "new")

    def __copy__(self) -> RemoteLayers:
        return self._create("copy", self.number)

    def merge(self, layers: Sequence[RemoteLayers]) -> RemoteLayers:
        return self._create("merge", tuple(each.number for each in layers))

    def extend(self, other: RemoteLayers) -> None:
        self.remote.emit("extend", self.number, other.number)

    def filter(self, rows: Any) -> None:
        self.remote.emit("filter", self.number, tuple(rows.tolist()))

    def extract(self, row: int) -> RemoteLayers:
        return self._create("extract", self.number, row)

    def prepare(self, *, lengths: Sequence[int], right_padding: Sequence[int]) -> None:
        self.remote.emit("prepare", self.number, tuple(lengths), tuple(right_padding))

    def finalize(self) -> None:
        self.remote.emit("finalize", self.number)

    def is_trimmable(self) -> bool:
        return False

    def copy_kv(self, row: int | None, start: int, stop: int, length: int) -> RemoteTensors:
        return self.remote.create(RemoteTensors, "copy_kv", self.number, row, start, stop, length)

    def copy_states(self, row: int | None) -> RemoteTensors:
        return self.remote.create(RemoteTensors, "copy_states", self.number, row)

    def restore(
        self, segments: Sequence[RemoteTensors], states: RemoteTensors | None, length: int, room: int
    ) -> None:
        """Fill the empty cache, as `kv_tensors.restore` does."""
        numbers = tuple(each.number for each in segments)
        self.remote.emit(
            "restore", self.number, numbers, None if states is None else states.number, length, room
        )

    def _create(self, name: str, *arguments: Any) -> RemoteLayers:
        return self.remote.create(RemoteLayers, name, *arguments)


class RemoteTensors:
    """Stored tensors of the other processes' layers, among those of the layers here."""

    nbytes = 8

    def __init__(self, remote: RemoteCaches, number: int) -> None:
        self.remote, self.number = remote, number

    def slice(self, start: int, stop: int) -> RemoteTensors:
        return self.remote.create(RemoteTensors, "slice_kv", self.number, start, stop)

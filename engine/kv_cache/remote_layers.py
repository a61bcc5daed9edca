"""Stand-ins, in caches here, for the layers that other processes compute: each change is repeated there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

REFERENCE = 1
"""Code of MessagePack's extension type that stands for an object of the other processes, by its number."""


class RemoteCaches:
    """The caches and stored tensors of other processes, by numbers, and what is to be done with them.

    Args:
        kinds: Names of the classes of the other processes' layers.
    """

    def __init__(self, kinds: frozenset[str]) -> None:
        self.kinds = kinds
        self._operations: list[msgspec.Raw] = []
        self._dropped: list[int] = []
        self._numbers = 0

    def emit(self, name: str, *arguments: Any, number: int = 0) -> None:
        """Add an operation: the name of a function there, its arguments, and the number of its result."""
        operation = msgspec.msgpack.encode((name, number, *arguments), enc_hook=_reference)
        self._operations.append(msgspec.Raw(operation))

    def create(self, kind: Callable[[RemoteCaches, int], T], name: str, *arguments: Any) -> T:
        """Emit an operation with a result, and return its stand-in. The result is dropped with that."""
        self._numbers += 1
        made = kind(self, self._numbers)
        weakref.finalize(made, self._dropped.append, self._numbers)
        self.emit(name, *arguments, number=self._numbers)
        return made

    def pop_plan(self, *last: Any) -> bytes:
        """Return the operations since the last call, then one that drops what nothing refers to here, then
        the `last` one; empty if there are none.
        """
        count = len(self._dropped)
        dropped, self._dropped[:count] = tuple(self._dropped[:count]), []
        for operation in filter(None, (dropped and ("drop", dropped), last)):
            self.emit(*operation)
        operations, self._operations = self._operations, []
        return msgspec.msgpack.encode(operations) if operations else b""


class _StandIn:
    nbytes = 8  # of the number alone; the other processes account for their own

    def __init__(self, remote: RemoteCaches, number: int) -> None:
        self.remote, self.number = remote, number


def _reference(value: Any) -> Any:
    if isinstance(value, _StandIn):
        return msgspec.msgpack.Ext(REFERENCE, value.number.to_bytes(8, "big"))
    raise NotImplementedError(f"operations take no {type(value).__name__}")


class RemoteLayers(_StandIn):
    """The other processes' layers of one cache, in a list of layers; has the methods of mlx-lm's classes."""

    state: tuple[()] = ()

    @classmethod
    def new(cls, remote: RemoteCaches) -> RemoteLayers:
        return remote.create(cls, "new_cache")

    def __copy__(self) -> RemoteLayers:
        return self.remote.create(RemoteLayers, "shallow_copy", self)

    def __deepcopy__(self, memo: object) -> RemoteLayers:
        return self.remote.create(RemoteLayers, "deepcopy", self)

    def merge(self, layers: Sequence[RemoteLayers]) -> RemoteLayers:
        return self.remote.create(RemoteLayers, "merge", layers)

    def extend(self, other: RemoteLayers) -> None:
        self.remote.emit("extend", self, other)

    def filter(self, rows: Any) -> None:
        self.remote.emit("filter_rows", self, rows.tolist())

    def extract(self, row: int) -> RemoteLayers:
        return self.remote.create(RemoteLayers, "extract", self, row)

    def prepare(self, *, lengths: Sequence[int], right_padding: Sequence[int]) -> None:
        self.remote.emit("prepare", self, lengths, right_padding)

    def finalize(self) -> None:
        self.remote.emit("finalize", self)

    def is_trimmable(self) -> bool:
        return False

    def copy_kv(self, row: int | None, start: int, stop: int, length: int) -> RemoteTensors:
        return self.remote.create(RemoteTensors, "copy_kv", self, row, start, stop, length)

    def copy_states(self, row: int | None) -> RemoteTensors:
        return self.remote.create(RemoteTensors, "copy_states", self, row)

    def restore(
        self, segments: Sequence[RemoteTensors], states: RemoteTensors | None, length: int, room: int
    ) -> None:
        """Fill the empty cache, as `kv_tensors.restore` does."""
        self.remote.emit("restore", self, segments, states or (), length, room)


class RemoteTensors(_StandIn):
    """Stored tensors of the other processes' layers, among those of the layers here."""

    def __getitem__(self, key: tuple[slice, slice, slice]) -> RemoteTensors:
        return self.remote.create(RemoteTensors, "slice_kv", self, key[2].start or 0, key[2].stop)

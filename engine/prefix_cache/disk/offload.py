"""Copies what was kept in memory for the thread that writes it, a little at each step of the engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import attrs
import mlx.core as mx
import numpy as np

from greenroom.engine.prefix_cache.disk.block import CacheBlock, Tensor, prefix_hashes
from greenroom.engine.prefix_cache.disk.index import DiskIndex
from greenroom.engine.prefix_cache.disk.writer import DiskWriter
from greenroom.engine.prefix_cache.memory.kv_tensors import LayerTensors
from greenroom.engine.prefix_cache.memory.tree import Node, PrefixTree

LEAST = 32
"""New tokens that are worth a file."""

_FILE = 32 * 1024 * 1024
"""Bytes of a file of spans; more tokens are more files, so that what waits to be written is bounded."""

_PIECE = 1024 * 1024
"""Bytes between two looks at the clock."""

_WISHES = 256
"""Prefixes that may wait to be copied; they cost no more than their tokens."""

_SETTLED = 2
"""Steps after which a copy made on the device is done for certain, and looking at it waits for nothing."""

_DTYPES = {
    mx.bfloat16: "BF16",
    mx.float16: "F16",
    mx.float32: "F32",
    mx.uint8: "U8",
    mx.int8: "I8",
    mx.uint16: "U16",
    mx.int16: "I16",
    mx.uint32: "U32",
    mx.int32: "I32",
}


@attrs.frozen(eq=False)
class PendingWrite:
    tree: PrefixTree
    tokens: bytes
    states: bool
    step: int


class Offload:
    """Prefixes that were kept in memory and are to be on disk too, in order; on the model's thread.

    A prefix that memory forgets before its turn comes is forgotten here as well.
    """

    def __init__(self, index: DiskIndex, writer: DiskWriter) -> None:
        self.skipped = 0
        self._index = index
        self._writer = writer
        self._wishes: deque[PendingWrite] = deque()
        self._copying: Iterator[int] | None = None
        self._patience = 0.0
        self._step = 0

    @property
    def pending(self) -> bool:
        """Whether `advance` has something to do."""
        return bool(self._wishes) or self._copying is not None

    def wish(self, tree: PrefixTree, tokens: bytes, states: bool) -> None:
        """Have a prefix written.

        Args:
            tokens: Packed.
            states: It has layers that cannot be cut.
        """
        self._wishes.append(PendingWrite(tree, tokens, states, self._step))
        if len(self._wishes) > _WISHES:
            self._wishes.popleft()
            self.skipped += 1

    def advance(self, nbytes: float, patience: float = 0.0) -> None:
        """Copy about so many bytes.

        Args:
            patience: Seconds to wait at most for the disk, if it is what lags.
        """
        self._step += 1
        self._patience = patience
        while nbytes > 0:
            if self._copying is None:
                if not self._wishes or self._wishes[0].step + _SETTLED > self._step:
                    return
                self._copying = self._copy(self._wishes.popleft())
            copied = next(self._copying, None)
            if copied is None:
                self._copying = None
            elif copied == 0:
                return
            else:
                nbytes -= copied

    def finish(self, seconds: float) -> None:
        """Copy everything that is left, unless the disk does not keep up."""
        self._step += _SETTLED
        self.advance(float("inf"), seconds)

    def _copy(self, wish: PendingWrite) -> Iterator[int]:
        """Yields the bytes of each piece; 0 if the disk lags."""
        length = len(wish.tokens) // 4
        found = self._index.find(wish.tokens, announced=True)
        at = found.length
        states = wish.states and found.usable(True) < length
        if length - at < LEAST and not states:
            return
        path = found.names()
        node = _node_at(wish, length - 1)
        if node is None or not _can_copy((*node.kv, *(node.states or ()))):
            return
        per_token = max(1, sum(a.nbytes for a in node.kv if a is not None) // (node.end - node.start))
        while at < length:
            stop = at + max(LEAST, _FILE // per_token)
            stop = length if length - stop < LEAST else stop
            kept = CacheBlock("span", prefix_hashes(wish.tokens, [at])[0], at, wish.tokens[at * 4 : stop * 4])
            yield from self._copy_file(wish, kept, per_token * (stop - at), path)
            if kept.name not in path[-1:]:
                return
            at = stop
        if states:
            node = _node_at(wish, length - 1)
            size = node.states_bytes if node is not None and node.states is not None else None
            if size is not None:
                kept = CacheBlock("state", prefix_hashes(wish.tokens, [length])[0], length)
                yield from self._copy_file(wish, kept, size, path)

    def _copy_file(self, wish: PendingWrite, kept: CacheBlock, nbytes: int, path: list[str]) -> Iterator[int]:
        """Copy what belongs in a file and hand it over; only then its name is added to the path."""
        if not self._writer.takes(nbytes):
            self.skipped += 1
            return
        while not self._writer.reserve(nbytes, self._patience):
            yield 0
        tensors: list[Tensor | None] = []
        pieces = _copy_spans(wish, kept, tensors) if kept.kind == "span" else _copy_states(wish, tensors)
        for copied in pieces:
            if copied is None:
                self._writer.give_back(nbytes)
                return
            yield copied
        path.append(kept.name)
        self._index.add(kept, written=False)
        self._writer.write(kept, tuple(tensors), nbytes, [*path])


def to_array(tensor: Tensor, start: int = 0, stop: int | None = None) -> mx.array:
    """A tensor, or its tokens from `start` to `stop`, as the array that was copied out."""
    dtype = next(known for known, name in _DTYPES.items() if name == tensor.dtype)
    words = tensor.data.view(f"u{dtype.size}").reshape(tensor.shape)
    if stop is not None:
        words = words[:, :, start:stop]
    return mx.array(words).view(dtype)


def _can_copy(arrays: LayerTensors) -> bool:
    """Whether the format has names for these types."""
    return all(array is None or array.dtype in _DTYPES for array in arrays)


def _copy_spans(wish: PendingWrite, kept: CacheBlock, tensors: list[Tensor | None]) -> Iterator[int | None]:
    """Yields bytes; None if memory has forgotten the prefix."""
    first = _node_at(wish, kept.start)
    for index in range(len(first.kv) if first is not None else 0):
        whole: Any = None
        at = kept.start
        while at < kept.end:
            node = _node_at(wish, at)
            if node is None:
                yield None
                return
            array = node.kv[index]
            if array is None:
                break
            view = _view(array)
            one, heads, _, width = view.shape
            if whole is None:
                whole = np.empty((one, heads, kept.end - kept.start, width), np.uint8)
            stop = min(node.end, kept.end, at + max(1, _PIECE // max(1, heads * width)))
            whole[:, :, at - kept.start : stop - kept.start] = view[:, :, at - node.start : stop - node.start]
            yield max(1, heads * width * (stop - at))
            at = stop
        tensors.append(None if whole is None or array is None else _tensor(array, whole))
    if first is None:
        yield None


def _copy_states(wish: PendingWrite, tensors: list[Tensor | None]) -> Iterator[int | None]:
    index = 0
    while True:
        node = _node_at(wish, len(wish.tokens) // 4 - 1)
        if node is None or node.states is None:
            yield None
            return
        if index == len(node.states):
            return
        array = node.states[index]
        tensors.append(
            None if array is None else Tensor(_DTYPES[array.dtype], array.shape, _bytes(array).copy())
        )
        yield max(1, 0 if array is None else array.nbytes)
        index += 1


def _node_at(wish: PendingWrite, at: int) -> Node | None:
    """The node that holds a token of the prefix now: it may have been split, or forgotten."""
    match = wish.tree.match(wish.tokens)
    if match.length * 4 < len(wish.tokens):
        return None
    return next(node for node in match.path if node.start <= at < node.end)


def _tensor(like: mx.array, whole: Any) -> Tensor:
    shape = (*whole.shape[:3], like.shape[3])
    return Tensor(_DTYPES[like.dtype], shape, whole.reshape(-1))


def _view(array: mx.array) -> Any:
    """An array's bytes `[1, heads, tokens, bytes]`, not copied."""
    one, heads, tokens, width = array.shape
    return _bytes(array).reshape(one, heads, tokens, width * array.dtype.size)


def _bytes(array: Any) -> Any:
    return np.frombuffer(memoryview(array).cast("B") if array.size else b"", np.uint8)

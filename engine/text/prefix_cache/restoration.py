"""Restoration of a cached prefix into a sequence's cache, in steps of bounded size."""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from functools import partial
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.text.prefix_cache.disk_files import HostTensors
from greenroom.engine.text.prefix_cache.host_tier import StoredTier
from greenroom.engine.text.prefix_cache.kv_tensors import LayerTensors, arrays_of, slice_kv
from greenroom.engine.text.prefix_cache.memory_tier import MemoryTier, PrefixTree
from greenroom.engine.text.prefix_cache.offload import DiskMatch


@attrs.frozen
class Restored:
    """A restored prefix. `tokens`: length in tokens; `from_disk`: tokens of it that were read from files."""

    tokens: int = 0
    from_disk: int = 0


RestorationSteps = Generator["int | Future[Any]", None, Restored]
"""Generator that yields the bytes of each copy before making it, or a pending read."""


class Restoration:
    """Copies made one after another on the model's thread.

    Args:
        steps: Generator that makes the copies; closing it releases everything.

    Attributes:
        is_done: Whether the cache is filled.
        restored: What is in the cache once it is filled.
    """

    def __init__(self, steps: RestorationSteps) -> None:
        self.is_done = False
        self.restored = Restored()
        self._steps = steps
        self._next: int | Future[Any] = 0

    def is_waiting(self, seconds: float = 0.0) -> bool:
        """Return whether it waits for the disk. `seconds`: maximum seconds to wait for the read before
        returning.
        """
        return isinstance(self._next, Future) and not wait_for([self._next], seconds).done

    def advance(self, nbytes: float, *, force: bool = False) -> int:
        """Make the copies that fit into `nbytes`; return the bytes copied. `force`: whether to make the first
        copy even if it is larger.
        """
        copied = 0
        while not self.is_done and not self.is_waiting():
            following = 0 if isinstance(self._next, Future) else self._next
            if following > nbytes - copied and not (force and not copied):
                break
            copied += following
            try:
                self._next = next(self._steps)
            except StopIteration as end:
                self.restored, self.is_done = end.value, True
        return copied

    def close(self) -> None:
        self._steps.close()


READ_TIMEOUT = 5.0  # Timeout in seconds for one block; a slower disk costs more than prefill

Reading = Future["HostTensors | None"]


def insert_stored(
    stored: StoredTier, memory: MemoryTier, tree: PrefixTree, packed: bytes, found: DiskMatch, stateful: bool
) -> Generator[int | Reading, None, None]:
    """Copy the cached prefix of a prompt from stored blocks into the memory tier.

    The copy ends early if a block cannot be read or the memory tier is full.

    Yields:
        Bytes of each copy before it is made, or the pending read.
    """
    length = len(packed) // 4
    known = tree.match(packed).length
    wanted = [
        (block, min(end, length))
        for block, end in zip(found.blocks, found.ends, strict=True)
        if min(end, length) > max(block.start, known)
    ]
    if stateful and found.states is not None:
        wanted.append((found.states, length))
    reading: Reading | None = None
    for index, (block, stop) in enumerate(wanted):
        tensors = yield from _wait(stored, reading or stored.read(block))
        reading = stored.read(wanted[index + 1][0]) if index + 1 < len(wanted) else None
        if tensors is None:
            return
        if block.kind == "state":
            states = yield from _copied(tensors, 0, None)
            whole = tree.match(packed).length == length  # false if it did not all fit into memory
            insert = partial(memory.insert, tree, packed, lambda *_: (), partial(tuple, states))
            if not whole or not stored.move(block, insert):
                return
        elif (start := max(block.start, tree.match(packed).length)) < stop:
            kv = yield from _copied(tensors, start - block.start, stop - block.start)

            insert = partial(memory.insert, tree, packed[: stop * 4], partial(_part, kv, start), None)
            is_whole = known <= block.start and stop == block.end
            if tree.match(packed).length < start:
                return
            if not (stored.move(block, insert) if is_whole else insert()):
                return
    stored.record_use(found)


def _wait(stored: StoredTier, reading: Reading) -> Generator[Reading, None, HostTensors | None]:
    began = time.monotonic()
    while not reading.done():
        if time.monotonic() - began > READ_TIMEOUT:
            stored.abandon(reading)
            return None
        yield reading
    return reading.result()


def _copied(tensors: HostTensors, start: int, stop: int | None) -> Generator[int, None, LayerTensors]:
    """Copy tensors, or a range of their tokens, into MLX arrays."""
    arrays: list[mx.array | None] = []
    for tensor in tensors:
        part = None if tensor is None else tensor.part(start, stop)
        if part is not None:
            yield part.words.nbytes
        arrays.append(None if part is None else part.to_array())
    return tuple(arrays)


def _part(kv: LayerTensors, first: int, start: int, stop: int) -> LayerTensors:
    """Return tokens `start` to `stop` of a layer's tensors, without a copy if these are all. `first`:
    position in the prompt of the tensors' first token.
    """
    whole = start == first and all(array is None or array.shape[2] == stop - start for array in arrays_of(kv))
    return kv if whole else slice_kv(kv, start - first, stop - first)

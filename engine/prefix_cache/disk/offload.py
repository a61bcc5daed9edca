"""Hands what memory holds to the thread that writes it: no copy, and little of it at each step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import attrs

from greenroom.engine.prefix_cache.disk.block import CacheBlock, HostTensor, HostTensors, prefix_hashes
from greenroom.engine.prefix_cache.disk.index import DiskIndex, DiskMatch
from greenroom.engine.prefix_cache.disk.writer import BlockWrite, DiskWriter
from greenroom.engine.prefix_cache.memory.kv_tensors import LayerTensors, nbytes_of
from greenroom.engine.prefix_cache.memory.tree import Node, PrefixTree

MIN_TOKENS = 32
"""New tokens that are worth a file."""

_FILE_BYTES = 32 * 1024 * 1024
"""Of a file of KV tensors; more tokens are more files, so that what waits to be written is bounded."""

_MAX_PENDING = 256
"""Prefixes that may wait; they cost no more than their tokens."""

_EVALUATED_AFTER = 2
"""Steps after which a copy made on the device is done for certain, and looking at it waits for nothing."""


@attrs.frozen(eq=False)
class PendingWrite:
    """A prefix to be written, and the step in which it was inserted in memory."""

    tree: PrefixTree
    tokens: bytes
    stateful: bool
    step: int


class Offload:
    """Prefixes that were inserted in memory and are to be on disk too, in order; on the model's thread.

    A prefix that memory evicts before its turn comes is not written.
    """

    def __init__(self, index: DiskIndex, writer: DiskWriter) -> None:
        self.skipped = 0
        self._index = index
        self._writer = writer
        self._pending: deque[PendingWrite] = deque()
        self._step = 0
        self._blocked = False

    @property
    def pending(self) -> bool:
        """Whether `advance` has something to do."""
        return bool(self._pending) or self._writer.waiting_bytes > 0

    def add(self, tree: PrefixTree, tokens: bytes, stateful: bool) -> None:
        """Have a prefix written.

        Args:
            tokens: Packed.
            stateful: Whether the model has recurrent or rotating layers.
        """
        self._pending.append(PendingWrite(tree, tokens, stateful, self._step))
        if len(self._pending) > _MAX_PENDING:
            self._pending.popleft()
            self.skipped += 1

    def advance(self, timeout: float = 0.0) -> None:
        """Have written what the writer has room for, and release what it has written.

        Args:
            timeout: Seconds to wait at most for the disk, each time that nothing has been written meanwhile.
        """
        self._step += 1
        while self._pending and self._pending[0].step + _EVALUATED_AFTER <= self._step:
            if self._blocked and not self._writer.release(timeout):
                return
            self._blocked = not self._start_writing(self._pending[0])
            if not self._blocked:
                self._pending.popleft()
        self._writer.release(timeout)

    def finish(self, seconds: float) -> None:
        """Have everything written that is left, unless the disk writes nothing for so long."""
        self._step += _EVALUATED_AFTER
        self.advance(seconds)

    def _start_writing(self, write: PendingWrite) -> bool:
        """Have written what is not on disk of a prefix; return False if there was no room for all of it."""
        length = len(write.tokens) // 4
        path = write.tree.match(write.tokens).path
        if not path or path[-1].end < length:  # it was evicted
            return True
        found = self._index.match(write.tokens, announced=True)
        names = found.names()
        for block in _missing_blocks(write, path, found):
            pieces = _pieces_of(block, path)
            nbytes = sum(each.words.nbytes for piece in pieces for each in piece if each is not None)
            if not self._writer.can_write(nbytes):
                self.skipped += 1
                continue
            if not self._writer.has_room(nbytes):
                return False
            names.append(block.name)
            self._index.insert(block, written=False)
            self._writer.add(BlockWrite(block, pieces, tuple(names), nbytes))
        return True


def _missing_blocks(write: PendingWrite, path: Sequence[Node], found: DiskMatch) -> Iterator[CacheBlock]:
    """Yield the files that a prefix in memory lacks on disk."""
    length, at = len(write.tokens) // 4, found.length
    lacks_states = write.stateful and found.usable(True) < length
    if length - at < MIN_TOKENS and not lacks_states:
        return
    last = path[-1]
    per_token = max(1, nbytes_of(last.kv) // (last.end - last.start))
    while at < length:
        stop = at + max(MIN_TOKENS, _FILE_BYTES // per_token)
        stop = length if length - stop < MIN_TOKENS else stop
        yield CacheBlock("kv", prefix_hashes(write.tokens, [at])[0], at, write.tokens[at * 4 : stop * 4])
        at = stop
    if lacks_states and last.end == length and last.states is not None:
        yield CacheBlock("state", prefix_hashes(write.tokens, [length])[0], length)


def _pieces_of(block: CacheBlock, path: Sequence[Node]) -> tuple[HostTensors, ...]:
    """Return what belongs in a file, from the nodes that hold it."""
    if block.kind == "state":
        return (_views(path[-1].states or ()),)
    pieces: list[HostTensors] = []
    for node in path:
        start, stop = max(block.start, node.start), min(block.end, node.end)
        if start < stop:
            pieces.append(_views(node.kv, start - node.start, stop - node.start))
    return tuple(pieces)


def _views(arrays: LayerTensors, start: int = 0, stop: int | None = None) -> HostTensors:
    return tuple(None if array is None else HostTensor.view(array).part(start, stop) for array in arrays)

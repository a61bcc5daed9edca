"""Offload of cached prefixes from memory to disk, one file at a time on another thread."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import attrs
import numpy as np

from greenroom.engine.resources.device_errors import check_device
from greenroom.engine.text.prefix_cache.disk_files import (
    CacheBlock,
    DiskFolder,
    DiskIsLowError,
    HostTensor,
    HostTensors,
    token_hash,
)
from greenroom.engine.text.prefix_cache.kv_tensors import LayerTensors, arrays_of, nbytes_of
from greenroom.engine.text.prefix_cache.memory_tier import Node, PrefixTree, common_length
from greenroom.schemas.logs import get_logger

log = get_logger()

MIN_TOKENS = 32  # Least new tokens worth a file

_FILE_BYTES = 32 * 1024 * 1024
"""Target size of a KV file in bytes; longer runs are split, which bounds the data waiting for the disk."""

_MAX_PENDING = 256  # Most prefixes that may wait to be written; each costs only the memory of its tokens

_EVALUATED_AFTER = 2
"""Steps after which a copy on the device is certainly done, so that reading it does not block."""

_DOUBTFUL = 1024
"""Most files removed after a crash; older files are known to be good, since as many launches came after."""

_MAX_FAILURES = 3  # Successive failed writes after which no more are tried


@attrs.frozen(eq=False)
class PendingWrite:
    """A prefix to be written, with the step of its insertion into memory."""

    tree: PrefixTree
    tokens: bytes
    stateful: bool
    step: int


class Offload:
    """Ordered queue of prefixes to write to disk, on the model's thread.

    A prefix evicted from memory before its turn is not written. Arrays must be released by the thread that
    created them, so this thread keeps them until the file is written.
    """

    def __init__(self, folder: DiskFolder, index: DiskIndex, thread: DiskThread) -> None:
        self.skipped = self.written = 0
        self._failures = 0
        self._is_low = False
        self._folder = folder
        self._index = index
        self._thread = thread
        self._pending: deque[PendingWrite] = deque(maxlen=_MAX_PENDING)
        self._files: Iterator[tuple[CacheBlock, list[HostTensors], list[str]]] = iter(())
        self._writing: tuple[Future[None], list[HostTensors]] | None = None
        self._doubtful: deque[str] = deque(maxlen=_DOUBTFUL)
        """Names of the files written since the device was last known to be idle."""
        self._step = 0

    @property
    def pending(self) -> bool:
        return bool(self._pending) or self._writing is not None

    def add(self, tree: PrefixTree, tokens: bytes, stateful: bool) -> None:
        """Queue a prefix to be written. `tokens`: token ids, packed into bytes."""
        failed = self._failures >= _MAX_FAILURES
        self.skipped += failed or len(self._pending) == _MAX_PENDING
        if not failed:
            self._pending.append(PendingWrite(tree, tokens, stateful, self._step))

    def disable(self) -> None:
        self._failures = _MAX_FAILURES

    def drop(self) -> None:
        """Stop writing, and remove the files written since the device was last known to be idle."""
        self.disable()
        self._pending.clear()
        self._files = iter(())
        self._thread.submit(partial(self._remove, tuple(self._doubtful)))

    def advance(self, timeout: float = 0.0, *, idle: bool = False) -> None:
        """Start the next writes if earlier ones are done.

        Args:
            timeout: Seconds to wait for writes.
            idle: Whether nothing else is computed, so that the device can be synchronized.

        Raises:
            RuntimeError: The device has failed, so that the data may be wrong.
        """
        self._step += 1
        end = time.monotonic() + timeout
        while self._wait(max(0.0, end - time.monotonic())):
            file = next(self._files, None)
            if file is not None:
                block, pieces, path = file
                self._check(block, idle)
                self._writing = self._thread.submit(partial(self._write, block, pieces, path)), pieces
            elif self._pending and self._pending[0].step + _EVALUATED_AFTER <= self._step:
                self._files = self._missing_files(self._pending.popleft())
            else:
                return

    def finish(self, seconds: float) -> None:
        """Write what is left, as far as the disk manages in this many seconds."""
        self._step += _EVALUATED_AFTER
        self.advance(seconds, idle=True)

    def _check(self, block: CacheBlock, idle: bool) -> None:
        """Check the device before a file is written, since files outlive the process."""
        check_device(idle=idle)
        if idle:
            self._doubtful.clear()
        self._doubtful.append(block.name)

    def _wait(self, timeout: float) -> bool:
        """Return whether no write is in progress."""
        if self._writing is not None:
            try:
                self._writing[0].result(timeout)
            except TimeoutError:
                return False
            self._writing = None
        return True

    def _missing_files(
        self, write: PendingWrite
    ) -> Iterator[tuple[CacheBlock, list[HostTensors], list[str]]]:
        """Yield the files that a prefix lacks on disk, their content, and the file names on its path."""
        length, origin = len(write.tokens) // 4, write.tree.key.origin
        found = self._index.match(write.tokens, origin)
        lacks_states, at = write.stateful and found.usable(True) < length, found.length
        if length - at < MIN_TOKENS and not lacks_states:
            return
        names = found.names()
        while at < length or lacks_states:
            path = write.tree.match(write.tokens).path
            if not path or path[-1].end < length:  # evicted meanwhile
                return
            last = path[-1]
            if at < length:
                per_token = max(1, nbytes_of(last.kv) // (last.end - last.start))
                stop = at + max(MIN_TOKENS, _FILE_BYTES // per_token)
                stop = length if length - stop < MIN_TOKENS else stop
                tokens = write.tokens[at * 4 : stop * 4]
                block = CacheBlock("kv", token_hash(write.tokens[: at * 4], origin), at, tokens)
                pieces, at = _kv_pieces(path, at, stop), stop
            else:
                lacks_states = False
                if last.end > length or last.states is None:
                    return
                block = CacheBlock("state", token_hash(write.tokens, origin), length)
                pieces = [_views(last.states)]
            names = [*names, block.name]
            if _nbytes(pieces) > self._folder.max_file:
                self.skipped += 1
                return
            yield block, pieces, names

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._index.remove(name)
        self._folder.remove(names)
        log.warning("doubtful prefixes removed", actor="model", files=len(names))

    def _write(self, block: CacheBlock, pieces: list[HostTensors], path: list[str]) -> None:
        if self._failures >= _MAX_FAILURES:
            return
        try:
            tensors = tuple(map(_concatenate, zip(*pieces, strict=True)))
            evicted = self._folder.write(block, tensors)
        except DiskIsLowError as low:
            self._skip(low)
            return
        except OSError as error:
            self._failures += 1
            log.warning("prefix not written", actor="model", reason=str(error))
            if self._failures == _MAX_FAILURES:
                log.error("no more prefixes are written", actor="model", reason=str(error))
            return
        self._forget(evicted)
        self._folder.touch(path)
        self._index.insert(block)
        self.written += 1
        self._failures, self._is_low = 0, False
        log.debug("prefix written", actor="model", file=block.name, bytes=_nbytes([tensors]))

    def _skip(self, low: DiskIsLowError) -> None:
        """Skip a file because the disk is nearly full."""
        self._forget(low.evicted)
        self.skipped += 1
        if not self._is_low:
            log.warning("prefixes are not written", actor="model", reason=str(low))
        self._is_low = True

    def _forget(self, evicted: Iterable[str]) -> None:
        for name in evicted:
            self._index.remove(name)


def _kv_pieces(path: Sequence[Node], start: int, stop: int) -> list[HostTensors]:
    """Return views of the KV tensors of a range of tokens, one per node that holds some."""
    return [
        _views(node.kv, max(start, node.start) - node.start, min(stop, node.end) - node.start)
        for node in path
        if max(start, node.start) < min(stop, node.end)
    ]


def _views(arrays: LayerTensors, start: int = 0, stop: int | None = None) -> HostTensors:
    return tuple(
        None if array is None else HostTensor.view(array).part(start, stop) for array in arrays_of(arrays)
    )


def _nbytes(pieces: Sequence[HostTensors]) -> int:
    return sum(tensor.words.nbytes for piece in pieces for tensor in piece if tensor is not None)


def _concatenate(pieces: HostTensors) -> HostTensor | None:
    found = [piece.words for piece in pieces if piece is not None]
    if pieces[0] is None:
        return None
    words = np.concatenate(found, axis=2) if len(found) > 1 else np.ascontiguousarray(found[0])
    return HostTensor(pieces[0].dtype, words)


@attrs.frozen
class DiskMatch:
    """Part of a prompt that is on disk.

    Args:
        blocks: Consecutive KV files; the last one may match only in part.
        length: Number of tokens shared with the prompt.
        states: File of states after the longest such prefix that has one.
    """

    blocks: tuple[CacheBlock, ...] = ()
    length: int = 0
    states: CacheBlock | None = None

    @property
    def ends(self) -> tuple[int, ...]:
        """Token positions up to which each file is used: the start of the next file."""
        return (*(block.start for block in self.blocks[1:]), self.length)

    def usable(self, stateful: bool) -> int:
        """Return the number of tokens that need no prefill."""
        if not stateful:
            return self.length
        return self.states.start if self.states else 0

    def names(self) -> list[str]:
        """Return the file names, in an order in which each file is useless without those before it."""
        return [block.name for block in (*self.blocks, self.states) if block is not None]


class DiskIndex:
    """Thread-safe index of files by their content."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[str, CacheBlock] = {}
        self._edges: dict[tuple[bytes, bytes], dict[str, CacheBlock]] = {}
        self._states: dict[bytes, CacheBlock] = {}
        self._lengths: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._blocks)

    def insert(self, block: CacheBlock) -> None:
        with self._lock:
            known = self._blocks.setdefault(block.name, block) is not block
            if block.kind == "kv":
                self._edges.setdefault((block.prefix, block.tokens[:4]), {})[block.name] = block
            elif not known:
                self._states[block.prefix] = block
                self._lengths[block.start] += 1

    def remove(self, name: str) -> None:
        with self._lock:
            block = self._blocks.pop(name, None)
            if block is None:
                return
            if block.kind == "kv":
                del self._edges[block.prefix, block.tokens[:4]][name]
            else:
                del self._states[block.prefix]
                self._lengths[block.start] -= 1

    def match(self, tokens: bytes, origin: bytes = b"") -> DiskMatch:
        with self._lock:
            blocks, at = list[CacheBlock](), 0
            running = hashlib.blake2b(digest_size=16, key=origin)
            while edges := self._edges.get((running.copy().digest(), tokens[at : at + 4])):
                rest = tokens[at:]
                count, block = max(
                    ((common_length(block.tokens, rest), block) for block in edges.values()),
                    key=lambda way: way[0],
                )
                running.update(rest[:count])
                at += count
                blocks.append(block)
            running, hashed, states = hashlib.blake2b(digest_size=16, key=origin), 0, None
            for end in sorted(4 * length for length, files in self._lengths.items() if files):
                if end > at:
                    break
                running.update(tokens[hashed:end])
                hashed, states = end, self._states.get(running.copy().digest(), states)
            return DiskMatch(tuple(blocks), at // 4, states)


Result = TypeVar("Result")


class DiskThread:
    """Thread that runs calls in order; a daemon, so that a hanging disk cannot keep the process alive."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Queue a call; the thread drops its reference to the call before the result is set."""
        future: Future[Result] = Future()
        self._calls.put((call, future))
        return future

    def close(self, seconds: float) -> bool:
        """Stop after all queued calls; return whether the thread ended within the timeout."""
        self._calls.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._calls.get()) is not None:
            call, future = job
            result, error = None, None
            try:
                if future.set_running_or_notify_cancel():
                    result = call()
            except BaseException as raised:
                error = raised
            del job, call
            if error is not None:
                future.set_exception(error)
            elif not future.cancelled():
                future.set_result(result)
            del future, result, error

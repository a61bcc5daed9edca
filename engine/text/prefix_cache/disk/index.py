"""Index of the disk tier: a radix tree whose edges are files, looked up by hashes of prefixes."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter

import attrs

from greenroom.engine.text.prefix_cache.disk.block import CacheBlock, token_hash
from greenroom.engine.text.prefix_cache.memory.tree import common_length


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
        """Add a written file."""
        with self._lock:
            known = self._blocks.setdefault(block.name, block) is not block
            if block.kind == "kv":
                self._edges.setdefault((block.prefix, block.tokens[:4]), {})[block.name] = block
            elif not known:
                self._states[block.prefix] = block
                self._lengths[block.start] += 1

    def remove(self, name: str) -> None:
        """Remove a file if it is in the index."""
        with self._lock:
            block = self._blocks.pop(name, None)
            if block is None:
                return
            if block.kind == "kv":
                del self._edges[block.prefix, block.tokens[:4]][name]
            else:
                del self._states[block.prefix]
                self._lengths[block.start] -= 1

    def match(self, tokens: bytes) -> DiskMatch:
        """Return the longest prefix of packed token ids that is on disk."""
        with self._lock:
            blocks, at = list[CacheBlock](), 0
            running = hashlib.blake2b(digest_size=16)
            while edges := self._edges.get((running.copy().digest(), tokens[at : at + 4])):
                rest = tokens[at:]
                count, block = max(
                    ((common_length(block.tokens, rest), block) for block in edges.values()),
                    key=lambda way: way[0],
                )
                running.update(rest[:count])
                at += count
                blocks.append(block)
            lengths = (length for length, files in self._lengths.items() if files and length * 4 <= at)
            for length in sorted(lengths, reverse=True):
                if states := self._states.get(token_hash(tokens[: length * 4])):
                    return DiskMatch(tuple(blocks), at // 4, states)
            return DiskMatch(tuple(blocks), at // 4)

"""What is on disk, as a radix tree whose edges are files: a prefix is found by the hash of its tokens."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter

import attrs

from greenroom.engine.prefix_cache.disk.block import CacheBlock, token_hash
from greenroom.engine.prefix_cache.memory.tree import common_length


@attrs.frozen
class DiskMatch:
    """How far a prompt is on disk.

    Args:
        blocks: Files of KV tensors that follow each other, the last one perhaps of use in part.
        length: Tokens that they have in common with the prompt.
        states: The file of states after the longest prefix within that has one.
    """

    blocks: tuple[CacheBlock, ...] = ()
    length: int = 0
    states: CacheBlock | None = None

    @property
    def ends(self) -> tuple[int, ...]:
        """Up to which token each file is of use: where the next one begins."""
        return (*(block.start for block in self.blocks[1:]), self.length)

    def usable(self, stateful: bool) -> int:
        """Return the tokens that need not be computed."""
        if not stateful:
            return self.length
        return self.states.start if self.states else 0

    def names(self) -> list[str]:
        """Return its files' names, those first that the others are of no use without."""
        return [block.name for block in (*self.blocks, self.states) if block is not None]


class DiskIndex:
    """Files by what they hold. Everything may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[str, CacheBlock] = {}
        self._edges: dict[tuple[bytes, bytes], dict[str, CacheBlock]] = {}
        self._states: dict[bytes, CacheBlock] = {}
        self._lengths: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._blocks)

    def insert(self, block: CacheBlock) -> None:
        """Add a file that is written."""
        with self._lock:
            known = self._blocks.setdefault(block.name, block) is not block
            if block.kind == "kv":
                self._edges.setdefault((block.prefix, block.tokens[:4]), {})[block.name] = block
            elif not known:
                self._states[block.prefix] = block
                self._lengths[block.start] += 1

    def remove(self, name: str) -> None:
        """Remove a file, if it is known."""
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
        """Return how far packed tokens are on disk."""
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

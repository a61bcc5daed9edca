"""What is on disk, as a radix tree whose edges are files: a prefix is found by the hash of its tokens."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter

import attrs

from greenroom.engine.prefix_cache.disk.block import CacheBlock, prefix_hashes
from greenroom.engine.prefix_cache.memory.tree import common_length


@attrs.frozen
class DiskMatch:
    """How far a prompt is on disk.

    Args:
        blocks: Files of KV tensors that follow each other, the last one perhaps of use in part.
        length: Tokens that they have in common with the prompt.
        states: Files of states within, shortest prefix first.
    """

    blocks: tuple[CacheBlock, ...] = ()
    length: int = 0
    states: tuple[CacheBlock, ...] = ()

    @property
    def ends(self) -> tuple[int, ...]:
        """Up to which token each file is of use: where the next one begins."""
        return (*(block.start for block in self.blocks[1:]), self.length)

    def usable(self, stateful: bool) -> int:
        """Return the tokens that need not be computed."""
        if not stateful:
            return self.length
        return self.states[-1].start if self.states else 0

    def names(self) -> list[str]:
        """Return its files' names, those first that the others are of no use without."""
        return [block.name for block in (*self.blocks, *self.states[-1:])]


class DiskIndex:
    """Files by what they hold. Everything may be used from any thread.

    A file that is announced but not written yet counts only for those who ask what need not be written.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kv: dict[tuple[bytes, bytes], list[CacheBlock]] = {}
        self._states: dict[bytes, CacheBlock] = {}
        self._lengths: Counter[int] = Counter()
        self._blocks: dict[str, CacheBlock] = {}
        self._written: set[str] = set()

    def __len__(self) -> int:
        return len(self._written)

    def insert(self, block: CacheBlock, *, written: bool) -> None:
        """Announce a file, or record that it is written."""
        with self._lock:
            if block.name not in self._blocks:
                self._blocks[block.name] = block
                if block.kind == "state":
                    self._states[block.prefix] = block
                    self._lengths[block.start] += 1
                else:
                    self._kv.setdefault((block.prefix, block.tokens[:4]), []).append(block)
            if written:
                self._written.add(block.name)

    def remove(self, name: str) -> None:
        """Remove a file, if it is known."""
        with self._lock:
            block = self._blocks.pop(name, None)
            self._written.discard(name)
            if block is None:
                return
            if block.kind == "state":
                del self._states[block.prefix]
                self._lengths[block.start] -= 1
            else:
                self._kv[block.prefix, block.tokens[:4]].remove(block)

    def match(self, tokens: bytes, *, announced: bool = False) -> DiskMatch:
        """Return how far packed tokens are on disk.

        Args:
            announced: Count what is not written yet.
        """
        with self._lock:
            known = self._blocks if announced else self._written
            blocks, at = list[CacheBlock](), 0
            running = hashlib.blake2b(digest_size=16)
            while at < len(tokens):
                edges = self._kv.get((running.copy().digest(), tokens[at : at + 4]), ())
                rest = tokens[at:]
                ways = [(common_length(block.tokens, rest), block) for block in edges if block.name in known]
                if not ways:
                    break
                count, block = max(ways, key=lambda way: way[0])
                running.update(rest[:count])
                at += count
                blocks.append(block)
            lengths = sorted(length for length, files in self._lengths.items() if files and length * 4 <= at)
            states = [self._states.get(prefix) for prefix in prefix_hashes(tokens, lengths)]
            return DiskMatch(
                tuple(blocks), at // 4, tuple(block for block in states if block and block.name in known)
            )

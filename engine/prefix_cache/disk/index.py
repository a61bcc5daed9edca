"""What is on disk, as a radix tree whose edges are files: a prefix is found by the hash of its tokens."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter

import attrs

from greenroom.engine.prefix_cache.disk.block import CacheBlock, prefix_hashes
from greenroom.engine.prefix_cache.memory.tree import common_length


@attrs.frozen
class Part:
    """A file on the way, and up to which token it is of use."""

    kept: CacheBlock
    stop: int


@attrs.frozen
class Found:
    """How far a prompt is on disk.

    Args:
        parts: Files of spans that follow each other.
        length: Tokens that they cover.
        states: Files of states within, shortest prefix first.
    """

    parts: tuple[Part, ...] = ()
    length: int = 0
    states: tuple[CacheBlock, ...] = ()

    def usable(self, states: bool) -> int:
        """Tokens that need not be computed."""
        if not states:
            return self.length
        return self.states[-1].start if self.states else 0

    def names(self) -> list[str]:
        """Its files, those first that the others are of no use without."""
        return [part.kept.name for part in self.parts] + [state.name for state in self.states[-1:]]


class DiskIndex:
    """Files by what they hold. Everything may be used from any thread.

    A file that is announced but not written yet counts only for those who ask what need not be written.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: dict[tuple[bytes, bytes], list[CacheBlock]] = {}
        self._states: dict[bytes, CacheBlock] = {}
        self._lengths: Counter[int] = Counter()
        self._known: dict[str, CacheBlock] = {}
        self._written: set[str] = set()

    def __len__(self) -> int:
        return len(self._written)

    def add(self, kept: CacheBlock, *, written: bool) -> None:
        """Announce a file, or tell that it is there."""
        with self._lock:
            if kept.name not in self._known:
                self._known[kept.name] = kept
                if kept.kind == "state":
                    self._states[kept.prefix] = kept
                    self._lengths[kept.start] += 1
                else:
                    self._spans.setdefault((kept.prefix, kept.tokens[:4]), []).append(kept)
            if written:
                self._written.add(kept.name)

    def remove(self, name: str) -> None:
        """Forget a file."""
        with self._lock:
            kept = self._known.pop(name, None)
            self._written.discard(name)
            if kept is None:
                return
            if kept.kind == "state":
                del self._states[kept.prefix]
                self._lengths[kept.start] -= 1
                if not self._lengths[kept.start]:
                    del self._lengths[kept.start]
            else:
                key = (kept.prefix, kept.tokens[:4])
                self._spans[key].remove(kept)
                if not self._spans[key]:
                    del self._spans[key]

    def find(self, tokens: bytes, *, announced: bool = False) -> Found:
        """How far packed tokens are on disk.

        Args:
            announced: Count what is not written yet.
        """
        with self._lock:
            parts, at = list[Part](), 0
            running = hashlib.blake2b(digest_size=16)
            while at * 4 < len(tokens):
                following = self._spans.get((running.copy().digest(), tokens[at * 4 : at * 4 + 4]), ())
                allowed = [kept for kept in following if announced or kept.name in self._written]
                if not allowed:
                    break
                rest = tokens[at * 4 :]
                count, index = max((common_length(kept.tokens, rest), i) for i, kept in enumerate(allowed))
                running.update(rest[:count])
                at += count // 4
                parts.append(Part(allowed[index], at))
            lengths = sorted(length for length in self._lengths if length <= at)
            states = [self._states.get(prefix) for prefix in prefix_hashes(tokens, lengths)]
        usable = [kept for kept in states if kept and (announced or kept.name in self._written)]
        return Found(tuple(parts), at, tuple(usable))

"""Computed beginnings of prompts, kept for the next prompt that begins so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import attrs
import mlx.core as mx

from greenroom.engine.batch.caches import Cache
from greenroom.engine.prefix_cache import layers
from greenroom.engine.prefix_cache.copying_out import LEAST
from greenroom.engine.prefix_cache.disk_index import Found
from greenroom.engine.prefix_cache.disk_tier import DiskTier, arrays_of
from greenroom.engine.prefix_cache.tree import Match, Node, PrefixTree, pack
from greenroom.schemas.model_key import ModelKey


@attrs.frozen
class Known:
    """What is known of a prompt.

    Args:
        usable: Tokens that `restore` would fill in.
        shared: Tokens that it has in common with an earlier one; more than `usable` if nobody stopped there.
    """

    usable: int
    shared: int


@attrs.frozen
class PrefixCacheStatistics:
    """Figures for operators and tests."""

    nbytes: int
    nodes: int
    hits: int
    misses: int
    evictions: int


class PrefixCache:
    """Least recently used beginnings go first, and of those only ends: what others continue is kept longest.

    Everything kept is copied out of the row's cache once and never written to. Where a model's cache cannot
    be cut to fewer tokens, a prompt can continue only where an earlier one was stored.

    Args:
        budget: Bytes that it may hold; 0 keeps nothing.
        disk: Where the prefixes of models without adapters are kept as well.

    Attributes:
        allow: Asked with the bytes that it wants to hold, and says how many it may: the account of memory
            that it shares with all that runs.
    """

    def __init__(self, budget: int, disk: DiskTier | None = None) -> None:
        self.budget = budget
        self.disk = disk
        self.allow: Callable[[int], int] = lambda nbytes: nbytes
        self.version = 0
        self._trees: dict[ModelKey, PrefixTree] = {}
        self._bytes = 0
        self._clock = itertools.count(1)
        self._unmeasured: list[Node] = []
        self._hits = self._misses = self._evictions = 0

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return self._bytes

    def statistics(self) -> PrefixCacheStatistics:
        """Figures of its whole life."""
        nodes = sum(1 for tree in self._trees.values() for _ in tree)
        return PrefixCacheStatistics(self._bytes, nodes, self._hits, self._misses, self._evictions)

    def known(self, key: ModelKey, tokens: Sequence[int], states: bool) -> Known:
        """How much of a prompt need not be computed; its last token always is.

        Args:
            states: Whether the model has layers that cannot be cut.
        """
        packed = pack(tokens[:-1])
        tree = self._trees.get(key)
        match = tree.match(packed) if tree else Match((), 0)
        found = self._on_disk(key, packed, _known(match, states))
        return Known(max(_known(match, states), found.usable(states)), max(match.length, found.length))

    def restore(self, key: ModelKey, tokens: Sequence[int], cache: Cache) -> int:
        """Fill an empty plain cache with the longest known beginning; returns its tokens."""
        packed = pack(tokens[:-1])
        self._read_from_disk(key, packed, layers.has_states(cache))
        tree = self._trees.get(key)
        match = tree.match(packed) if tree else Match((), 0)
        states: layers.Arrays = ()
        length = match.length
        path = match.path
        if layers.has_states(cache):
            last = _usable(match)
            length = last.end if last else 0
            path = path[: path.index(last) + 1] if last else ()
            if last and last.states is not None:
                states = last.states
                last.states_used = next(self._clock)
        if not length:
            self._misses += 1
            return 0
        self._hits += 1
        self._touch(path)
        segments = [node.spans for node in path[:-1]]
        whole = path[-1]
        kept = length - whole.start
        cut = kept < whole.end - whole.start
        segments.append(layers.view_spans(whole.spans, kept) if cut else whole.spans)
        layers.restore(cache, segments, states, length)
        return length

    def store(
        self, key: ModelKey, tokens: Sequence[int], cache: Cache, row: int | None, least: int = 1
    ) -> bool:
        """Keep what a cache holds after exactly these tokens; copies only what is not known yet.

        Args:
            row: Row of a batched cache; None for a plain one.
            least: New tokens for which it is worth while.
        """
        if not self.budget or not layers.can_keep(cache):
            return False
        self._measure()
        tree = self._trees.setdefault(key, PrefixTree())
        packed, length = pack(tokens), len(tokens)
        states = layers.has_states(cache)
        if length - _known(tree.match(packed), states) < least:
            return False
        held = self._place(
            tree,
            packed,
            lambda start: layers.cut_spans(cache, row, start, length, length),
            (lambda: layers.cut_states(cache, row)) if states else None,
        )
        if held and self.disk is not None and key.adapter is None:
            self.disk.keep(tree, packed, states)
        return held

    def shrink(self, budget: int) -> None:
        """Forget until no more than `budget` bytes are held."""
        while self._bytes > budget:
            victims = [
                (node.used if not node.children else node.states_used, id(node), node, tree)
                for tree in self._trees.values()
                for node in tree
                if not node.children or (node.states is not None and len(node.children) == 1)
            ]
            if not victims:
                break
            _, _, node, tree = min(victims)
            self._bytes -= node.states_bytes
            node.states, node.states_bytes = None, 0
            if not node.children:
                self._bytes -= node.spans_bytes
                tree.remove(node)
            self._evictions += 1
            self.version += 1
        self.allow(self._bytes)

    def clear(self) -> None:
        """Forget everything, now: nodes know each other, so arrays would wait for the collector."""
        for node in [node for tree in self._trees.values() for node in tree]:
            node.spans, node.states = (), None
        self._trees.clear()
        self._unmeasured.clear()
        self._bytes = 0
        self.allow(0)
        self.version += 1

    def close(self, seconds: float) -> None:
        """Write what is to be on disk, then forget everything.

        Args:
            seconds: That writing may take.
        """
        try:
            if self.disk is not None:
                self.disk.close(seconds)
        finally:
            self.clear()

    def _place(
        self,
        tree: PrefixTree,
        packed: bytes,
        spans: Callable[[int], layers.Arrays],
        states: Callable[[], layers.Arrays] | None,
    ) -> bool:
        """Keep a prefix; whether there is room for it.

        Args:
            spans: Makes those of the tokens from that one on, which are not known yet.
            states: Makes those after the last token.
        """
        match = tree.match(packed)
        self._touch(match.path)
        node = match.path[-1] if match.path else tree.root
        if match.length < node.end:
            if not self._may_hold(self._bytes + node.spans_bytes):  # both, until the copies are made
                return False
            node = self._split(tree, node, match.length)
        if match.length * 4 < len(packed):
            node = tree.add(node, packed[match.length * 4 :], spans(match.length))
            self._bytes += node.spans_bytes
            self._touch([node])
        if states is not None and node.states is None:
            node.states = states()
            node.states_bytes = layers.bytes_of(node.states)
            node.states_used = next(self._clock)
            self._bytes += node.states_bytes
        # Before anything is copied: arrays know their size without that.
        self.shrink(min(self.budget, self.allow(self._bytes)))
        self.version += 1
        if not _is_held(node):
            return False
        self._new([node])
        return True

    def _on_disk(self, key: ModelKey, packed: bytes, usable: int) -> Found:
        """What is on disk, if more than what memory knows could be."""
        if self.disk is None or key.adapter is not None or len(packed) // 4 - usable < LEAST:
            return Found()
        return self.disk.find(packed)

    def _read_from_disk(self, key: ModelKey, packed: bytes, states: bool) -> None:
        """Have in memory what is on disk of a prompt, where that is more."""
        tree = self._trees.get(key)
        usable = _known(tree.match(packed), states) if tree else 0
        disk = self.disk
        if disk is None or key.adapter is not None or len(packed) // 4 - usable < LEAST:
            return
        found = disk.find(packed)
        if found.usable(states) - usable < LEAST:
            disk.misses += 1
            return
        tree = self._trees.setdefault(key, PrefixTree())
        if self._read_parts(disk, tree, packed[: found.usable(states) * 4], found, states):
            disk.used(found)

    def _read_parts(
        self, disk: DiskTier, tree: PrefixTree, packed: bytes, found: Found, states: bool
    ) -> bool:
        length = len(packed) // 4
        after = disk.read(found.states[-1]) if states else ()
        if after is None:
            return False
        for part in found.parts:
            stop = min(part.stop, length)
            if stop <= max(part.kept.start, tree.match(packed).length):
                continue
            spans = disk.read(part.kept)
            if spans is None:
                return False
            cut = partial(arrays_of, spans, part, stop=stop)
            if not self._place(tree, packed[: stop * 4], cut, None):
                return False
        if not states:
            return True
        whole = tree.match(packed).length == length  # not if there was no room for all of it at once
        return whole and self._place(tree, packed, lambda _: (), partial(arrays_of, after))

    def _split(self, tree: PrefixTree, node: Node, length: int) -> Node:
        self._bytes -= node.spans_bytes
        front = tree.split(node, length)
        self._bytes += front.spans_bytes + node.spans_bytes
        self._new([front, node])
        return front

    def _may_hold(self, nbytes: int) -> bool:
        if self.allow(nbytes) >= nbytes:
            return True
        self.allow(self._bytes)
        return False

    def _touch(self, path: Sequence[Node]) -> None:
        now = next(self._clock)
        for node in path:
            node.used = now

    def _new(self, nodes: Sequence[Node]) -> None:
        """Have copies made soon: what is pending keeps all of its row's cache alive."""
        for node in nodes:
            mx.async_eval([array for array in (*node.spans, *(node.states or ())) if array is not None])
        self._unmeasured += nodes

    def _measure(self) -> None:
        """Correct the account by what the buffers of the latest copies really are."""
        for node in self._unmeasured:
            if not _is_held(node):
                continue
            arrays = (*node.spans, *(node.states or ()))
            mx.eval([array for array in arrays if array is not None])
            spans = layers.buffer_bytes(node.spans)
            states = layers.buffer_bytes(node.states or ())
            self._bytes += spans + states - node.spans_bytes - node.states_bytes
            node.spans_bytes, node.states_bytes = spans, states
        self._unmeasured.clear()


def _known(match: Match, states: bool) -> int:
    """Tokens of a match that need not be computed."""
    if not states:
        return match.length
    last = _usable(match)
    return last.end if last else 0


def _is_held(node: Node) -> bool:
    return node.parent is not None and node.parent.children.get(node.tokens[:4]) is node


def _usable(match: Match) -> Node | None:
    """The last node of a match whose states a prompt can continue from."""
    for node in reversed(match.path):
        if node.states is not None and node.end <= match.length:
            return node
    return None

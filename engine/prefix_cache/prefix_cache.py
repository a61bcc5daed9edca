"""Computed beginnings of prompts, kept for the next prompt that begins so."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import attrs
import mlx.core as mx

from greenroom.engine.batch.caches import Cache
from greenroom.engine.prefix_cache import layers
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
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
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
        tree = self._trees.get(key)
        if tree is None:
            return Known(0, 0)
        match = tree.match(pack(tokens[:-1]))
        return Known(_known(match, states), match.length)

    def restore(self, key: ModelKey, tokens: Sequence[int], cache: Cache) -> int:
        """Fill an empty plain cache with the longest known beginning; returns its tokens."""
        tree = self._trees.get(key)
        match = tree.match(pack(tokens[:-1])) if tree else Match((), 0)
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
        match = tree.match(packed)
        if length - _known(match, layers.has_states(cache)) < least:
            return False
        self._touch(match.path)
        node = match.path[-1] if match.path else tree.root
        if match.length < node.end:
            node = self._split(tree, node, match.length)
        if match.length < length:
            spans = layers.cut_spans(cache, row, match.length, length, length)
            node = tree.add(node, packed[match.length * 4 :], spans)
            self._bytes += node.spans_bytes
            self._touch([node])
        if layers.has_states(cache) and node.states is None:
            node.states = layers.cut_states(cache, row)
            node.states_bytes = layers.bytes_of(node.states)
            node.states_used = next(self._clock)
            self._bytes += node.states_bytes
        self.shrink(self.budget)  # before anything is copied: arrays know their size without that
        self.version += 1
        if not _is_held(node):
            return False
        self._new([node])
        return True

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
                return
            _, _, node, tree = min(victims)
            self._bytes -= node.states_bytes
            node.states, node.states_bytes = None, 0
            if not node.children:
                self._bytes -= node.spans_bytes
                tree.remove(node)
            self._evictions += 1
            self.version += 1

    def clear(self) -> None:
        """Forget everything, now: nodes know each other, so arrays would wait for the collector."""
        for node in [node for tree in self._trees.values() for node in tree]:
            node.spans, node.states = (), None
        self._trees.clear()
        self._unmeasured.clear()
        self._bytes = 0
        self.version += 1

    def _split(self, tree: PrefixTree, node: Node, length: int) -> Node:
        self._bytes -= node.spans_bytes
        front = tree.split(node, length)
        self._bytes += front.spans_bytes + node.spans_bytes
        self._new([front, node])
        return front

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

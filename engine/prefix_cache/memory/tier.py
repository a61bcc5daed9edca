"""Prefixes in memory, within a budget."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import mlx.core as mx

from greenroom.engine.prefix_cache.memory import kv_tensors
from greenroom.engine.prefix_cache.memory.tree import Match, Node, PrefixTree
from greenroom.schemas.model_key import ModelKey


class MemoryTier:
    """Evicts the least recently used, and of that only ends: what others continue stays longest.

    Args:
        budget: Bytes that it may hold; 0 caches nothing.

    Attributes:
        reserve: Given the bytes that it wants to hold, returns how many it may: the account of memory that
            it shares with all that runs.
        nbytes: Bytes that it holds.
        version: A number that changes whenever a match may come out otherwise.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.reserve: Callable[[int], int] = lambda nbytes: nbytes
        self.nbytes = self.version = self.evictions = 0
        self._trees: dict[ModelKey, PrefixTree] = {}
        self._clock = itertools.count(1)
        self._unmeasured: list[Node] = []

    @property
    def nodes(self) -> int:
        """Runs of tokens that are cached."""
        return sum(1 for tree in self._trees.values() for _ in tree)

    def match(self, key: ModelKey, packed: bytes) -> Match:
        """Return the longest cached prefix of a packed prompt."""
        tree = self._trees.get(key)
        return tree.match(packed) if tree else Match((), 0)

    def tree(self, key: ModelKey) -> PrefixTree:
        """Return the tree of a model's prefixes."""
        return self._trees.setdefault(key, PrefixTree())

    def insert(
        self,
        tree: PrefixTree,
        packed: bytes,
        copy_kv: Callable[[int], kv_tensors.LayerTensors],
        copy_states: Callable[[], kv_tensors.LayerTensors] | None,
    ) -> bool:
        """Insert a prefix; return whether there is room for it.

        Args:
            copy_kv: Returns KV tensors of the tokens from that one on, which are not cached yet.
            copy_states: Returns states after the last token; None for a model without.
        """
        match = tree.match(packed)
        self.touch(match.path)
        node = match.path[-1] if match.path else tree.root
        if match.length < node.end:
            if not self._try_reserve(self.nbytes + node.kv_bytes):  # both, until the copies are made
                return False
            node = self._split(tree, node, match.length)
        if match.length * 4 < len(packed):
            node = tree.insert(node, packed[match.length * 4 :], copy_kv(match.length))
            self.nbytes += node.kv_bytes
            self.touch([node])
        if copy_states is not None and node.states is None:
            node.states = copy_states()
            node.states_bytes = kv_tensors.nbytes_of(node.states)
            node.states_used_at = next(self._clock)
            self.nbytes += node.states_bytes
        # Before anything is copied: arrays know their size without that.
        self.evict_to(min(self.budget, self.reserve(self.nbytes)))
        self.version += 1
        if not _is_in_tree(node):
            return False
        self._evaluate([node])
        return True

    def touch(self, path: Sequence[Node], states: Node | None = None) -> None:
        """Record that these are used now, and the states of that one."""
        if states is not None:
            states.states_used_at = next(self._clock)
        now = next(self._clock)
        for node in path:
            node.used_at = now

    def measure(self) -> None:
        """Correct the account by what the buffers of the latest copies really are."""
        for node in self._unmeasured:
            if not _is_in_tree(node):
                continue
            arrays = (*node.kv, *(node.states or ()))
            mx.eval([array for array in arrays if array is not None])
            kv_bytes = kv_tensors.buffer_bytes(node.kv)
            states_bytes = kv_tensors.buffer_bytes(node.states or ())
            self.nbytes += kv_bytes + states_bytes - node.kv_bytes - node.states_bytes
            node.kv_bytes, node.states_bytes = kv_bytes, states_bytes
        self._unmeasured.clear()

    def evict_to(self, budget: int) -> None:
        """Evict until no more than `budget` bytes are held."""
        while self.nbytes > budget:
            candidates = [
                (node.used_at if not node.children else node.states_used_at, id(node), node, tree)
                for tree in self._trees.values()
                for node in tree
                if not node.children or (node.states is not None and len(node.children) == 1)
            ]
            if not candidates:
                break
            _, _, node, tree = min(candidates)
            self.nbytes -= node.states_bytes
            node.states, node.states_bytes = None, 0
            if not node.children:
                self.nbytes -= node.kv_bytes
                tree.remove(node)
            self.evictions += 1
            self.version += 1
        self.reserve(self.nbytes)

    def clear(self) -> None:
        """Release everything, now: nodes refer to each other, so arrays would wait for the collector."""
        for node in [node for tree in self._trees.values() for node in tree]:
            node.kv, node.states = (), None
        self._trees.clear()
        self._unmeasured.clear()
        self.nbytes = 0
        self.reserve(0)
        self.version += 1

    def _split(self, tree: PrefixTree, node: Node, length: int) -> Node:
        self.nbytes -= node.kv_bytes
        front = tree.split(node, length)
        self.nbytes += front.kv_bytes + node.kv_bytes
        self._evaluate([front, node])
        return front

    def _try_reserve(self, nbytes: int) -> bool:
        if self.reserve(nbytes) >= nbytes:
            return True
        self.reserve(self.nbytes)
        return False

    def _evaluate(self, nodes: Sequence[Node]) -> None:
        """Start making copies: what is pending keeps all of its sequence's cache alive."""
        for node in nodes:
            mx.async_eval([array for array in (*node.kv, *(node.states or ())) if array is not None])
        self._unmeasured += nodes


def _is_in_tree(node: Node) -> bool:
    return node.parent is not None and node.parent.children.get(node.tokens[:4]) is node

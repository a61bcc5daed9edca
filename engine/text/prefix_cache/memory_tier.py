"""Memory tier of the prefix cache, within a budget."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import attrs
import mlx.core as mx

from greenroom.engine.text.prefix_cache import kv_tensors
from greenroom.engine.text.prefix_cache.kv_tensors import LayerTensors, nbytes_of, slice_kv
from greenroom.engine.text.prompt_features import PrefixKey

NODE_BYTES = 32 * 1024 * 1024
"""Target size of a node in bytes (at most twice that), since splitting a node copies it."""


class MemoryTier:
    """Prefix cache in memory that evicts leaves by `RetentionPolicy`, so shared prefixes stay longest.

    Args:
        budget: Maximum bytes to hold; 0 disables the cache.

    Attributes:
        reserve: Function of the shared memory account: takes the bytes wanted and returns those granted.
        reserve_buffers: The same for device buffers, whose number may be limited.
        page: Page size in bytes, to which buffer sizes are rounded up.
        nbytes: Bytes held.
        buffers: Number of buffers held.
        version: Counter that changes whenever a match may return something else.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.reserve: Callable[[int], int] = lambda nbytes: nbytes
        self.reserve_buffers: Callable[[int], int] = lambda count: count
        self.page = 1
        self.nbytes = self.buffers = self.version = self.evictions = 0
        self._trees: dict[PrefixKey, PrefixTree] = {}
        self._retention = RetentionPolicy()
        self._unmeasured: list[Node] = []
        self._pinned: list[set[Node]] = []

    @property
    def nodes(self) -> int:
        return sum(1 for tree in self._trees.values() for _ in tree)

    def match(self, key: PrefixKey, packed: bytes) -> Match:
        """Return the longest cached prefix of a prompt, given as packed token ids."""
        tree = self._trees.get(key)
        return tree.match(packed) if tree else Match((), 0)

    def tree(self, key: PrefixKey) -> PrefixTree:
        """Return the prefix tree of a key; it is kept from its first entry to its last, since clients choose
        keys.
        """
        return self._trees.get(key) or PrefixTree(self.page, key)

    def insert(
        self,
        tree: PrefixTree,
        packed: bytes,
        copy_kv: Callable[[int, int], kv_tensors.LayerTensors],
        copy_states: Callable[[], kv_tensors.LayerTensors] | None,
        *,
        continued: bool = False,
    ) -> bool:
        """Insert a prefix; return whether it fits.

        Args:
            copy_kv: Function that copies the KV tensors of a range of tokens not cached yet.
            copy_states: Function that copies the states after the last token; None for a model without
                states.
            continued: Whether it continues an earlier prompt, such as the last turn of a session.
        """
        tree = self._trees.setdefault(tree.key, tree)
        match = tree.match(packed)
        self._retention.insert(len(packed) // 4 - match.length)
        self.touch(match.path)
        node = match.path[-1] if match.path else tree.root
        if match.length < node.end:
            # The old node and the copies coexist until the copies are made.
            if not self._try_reserve(node.kv_bytes, 2 * kv_tensors.buffers_of(node.kv)):
                return False
            node = self._split(tree, node, match.length)
        added, length = [node], len(packed) // 4
        while node.end < length:
            stop = _end_of_node(node.end, length, copy_kv)
            node = tree.insert(node, packed[node.end * 4 : stop * 4], copy_kv(node.end, stop))
            self.nbytes += node.kv_bytes
            self.buffers += kv_tensors.buffers_of(node.kv)
            self.touch([node])
            added.append(node)
        if copy_states is not None and node.states is None:
            node.states = copy_states()
            node.states_bytes = kv_tensors.nbytes_of(node.states, self.page)
            node.states_used_at = self._retention.use()
            self.nbytes += node.states_bytes
            self.buffers += kv_tensors.buffers_of(node.states)
        if continued:
            _mark_continued(node)
        # Evict before anything is copied: unevaluated arrays already know their size.
        self.evict_to(min(self.budget, self.reserve(self.nbytes)), self.reserve_buffers(self.buffers))
        self.version += 1
        self._evaluate([each for each in added if _is_in_tree(each)])
        return _is_in_tree(node)

    def touch(self, path: Sequence[Node], states: Node | None = None) -> None:
        """Mark nodes as used now, and the states of one of them."""
        if states is not None:
            states.states_used_at = self._retention.use()
        now = self._retention.use()
        for node in path:
            node.used_at = now

    def pin(self, path: Sequence[Node]) -> set[Node]:
        """Protect nodes from eviction while they are copied, since evicting them would free no memory yet."""
        pinned = set(path)
        self._pinned.append(pinned)
        return pinned

    def unpin(self, pinned: set[Node]) -> None:
        self._pinned = [nodes for nodes in self._pinned if nodes is not pinned]

    def measure(self) -> None:
        """Correct the accounted bytes by the real buffer sizes of the latest copies."""
        for node in self._unmeasured:
            if not _is_in_tree(node):
                continue
            arrays = (*node.kv, *(node.states or ()))
            mx.eval([array for array in kv_tensors.arrays_of(arrays) if array is not None])
            kv_bytes = kv_tensors.buffer_bytes(node.kv, self.page)
            states_bytes = kv_tensors.buffer_bytes(node.states or (), self.page)
            self.nbytes += kv_bytes + states_bytes - node.kv_bytes - node.states_bytes
            node.kv_bytes, node.states_bytes = kv_bytes, states_bytes
        self._unmeasured.clear()

    def evict_to(self, budget: int, buffers: int | None = None) -> None:
        order: EvictionOrder | None = None
        while self.nbytes > budget or (buffers is not None and self.buffers > buffers):
            if order is None:
                pinned = set[Node]().union(*self._pinned)
                order = EvictionOrder(self._trees.values(), pinned, self._retention, self.budget)
            if (least := order.pop()) is None:
                break
            node, tree = least
            self.nbytes -= node.states_bytes
            self.buffers -= kv_tensors.buffers_of(node.states or ())
            node.states, node.states_bytes = None, 0
            if not node.children:
                self.nbytes -= node.kv_bytes
                self.buffers -= kv_tensors.buffers_of(node.kv)
                order.push(tree.remove(node))
                if not tree.root.children:
                    del self._trees[tree.key]
            self.evictions += 1
            self.version += 1
        self._charge()

    def clear(self) -> None:
        """Release everything at once.

        Nodes form reference cycles, so their arrays would otherwise wait for the garbage collector.
        """
        for node in [node for tree in self._trees.values() for node in tree]:
            node.kv, node.states = (), None
        self._trees.clear()
        self._unmeasured.clear()
        self.nbytes = self.buffers = 0
        self._charge()
        self.version += 1

    def drain(self) -> Iterator[tuple[bytes, bytes, Node]]:
        """Yield the nodes that everybody shares with their origins and all tokens up to their ends, the most
        recently used first.

        A node comes after its parent, and its arrays are released after its turn.
        """
        nodes = [(key.origin, node) for key, tree in self._trees.items() if key.is_common for node in tree]
        for origin, node in sorted(nodes, key=lambda each: (-each[1].used_at, each[1].start)):
            yield origin, tokens_up_to(node), node
            self.nbytes -= node.kv_bytes + node.states_bytes
            self.buffers -= kv_tensors.buffers_of(node.kv) + kv_tensors.buffers_of(node.states or ())
            node.kv, node.states = (), None
            node.kv_bytes = node.states_bytes = 0
            self._charge()

    def _split(self, tree: PrefixTree, node: Node, length: int) -> Node:
        self.nbytes -= node.kv_bytes
        front = tree.split(node, length)
        self.nbytes += front.kv_bytes + node.kv_bytes
        self.buffers += kv_tensors.buffers_of(front.kv)
        for pinned in self._pinned:
            pinned.update({front} if node in pinned else ())
        self._evaluate([front, node])
        return front

    def _try_reserve(self, nbytes: int, buffers: int) -> bool:
        """Reserve additional bytes and buffers; return whether they are available."""
        nbytes, buffers = self.nbytes + nbytes, self.buffers + buffers
        if self.reserve(nbytes) >= nbytes and self.reserve_buffers(buffers) >= buffers:
            return True
        self._charge()
        return False

    def _charge(self) -> None:
        """Charge the account for exactly what is held."""
        self.reserve(self.nbytes)
        self.reserve_buffers(self.buffers)

    def _evaluate(self, nodes: Sequence[Node]) -> None:
        """Start the copies: an unevaluated copy keeps its sequence's whole cache alive."""
        for node in nodes:
            arrays = kv_tensors.arrays_of((*node.kv, *(node.states or ())))
            mx.async_eval([array for array in arrays if array is not None])
        self._unmeasured += nodes


def _end_of_node(start: int, end: int, copy_kv: Callable[[int, int], kv_tensors.LayerTensors]) -> int:
    """Return the end of a new node, from array sizes alone, without copying."""
    tokens = max(1, NODE_BYTES // max(1, kv_tensors.nbytes_of(copy_kv(start, start + 1))))
    return end if end - start < 2 * tokens else start + tokens


class EvictionOrder:
    """Order of the nodes that can be evicted: leaves, and those whose states can go.

    Args:
        budget: Maximum bytes of the whole cache.
    """

    def __init__(
        self, trees: Iterable[PrefixTree], pinned: set[Node], retention: RetentionPolicy, budget: int
    ) -> None:
        self._pinned, self._retention = pinned, retention
        self._known = {id(node): (node, tree) for tree in trees for node in tree}
        nodes = [node for node, _ in self._known.values()]
        self._newcomers = retention.newcomers((node for node in nodes if not node.children), budget)
        self._heap = [rank for node in nodes if (rank := self._rank(node)) is not None]
        heapq.heapify(self._heap)

    def push(self, node: Node) -> None:
        """Add a node that may be evictable now, because a child is gone."""
        if node.parent is not None and (rank := self._rank(node)) is not None:
            heapq.heappush(self._heap, rank)

    def pop(self) -> tuple[Node, PrefixTree] | None:
        """Remove and return the node to evict next; None if there is none."""
        while self._heap:
            *_, name = rank = heapq.heappop(self._heap)
            node, tree = self._known[name]
            if rank == self._rank(node) and _is_in_tree(node):  # it has not changed since
                return node, tree
        return None

    def _rank(self, node: Node) -> tuple[bool, int, int] | None:
        used_at = node.used_at
        if node.children:
            if node.states is None or len(node.children) > 1:
                return None
            used_at = node.states_used_at
        value = self._retention.value(node, used_at)
        return None if node in self._pinned else (id(node) in self._newcomers, value, id(node))


def _mark_continued(node: Node | None) -> None:
    while node is not None and node.parent is not None:
        node.continued = True
        node = node.parent


def _is_in_tree(node: Node) -> bool:
    return node.parent is not None and node.parent.children.get(node.tokens[:4]) is node


# Retention policy of cached prefixes: short ones that were used once leave first.
#
# Agents send side requests (titles, summaries) between two turns of a session. By recency alone, a few of
# them would evict the session, whose next turn would then be computed from its beginning.

_CREDIT = 2  # Tokens of other prompts that a prefix outlives, per token of its own length

_CONTINUED_CREDIT = 3
"""The same for a prefix that a later prompt has continued.

It is at most 1 more, so that a new session displaces one of the same length that is no longer used.
"""

_NEWCOMER_SHARE = 8
"""Divisor of the budget: this part of it is for the latest prefixes, however short they are."""


class Retained(Protocol):
    """Part of a cached prefix, as the policy sees it."""

    @property
    def end(self) -> int:
        """Length in tokens of the prefix up to its end."""

    used_at: int
    kv_bytes: int
    continued: bool


class RetentionPolicy:
    """Order in which cached prefixes are evicted.

    Time is counted in tokens inserted, so that many short prompts age a prefix no more than one long prompt.
    A prefix counts as younger by a multiple of its length, since a long one costs more to compute again.
    Prefixes of the same length leave in the order of their last use.

    Attributes:
        now: Tokens inserted so far, plus the number of uses.
    """

    def __init__(self) -> None:
        self.now = 0

    def use(self) -> int:
        """Return the time of a use, later than all earlier ones."""
        self.now += 1
        return self.now

    def insert(self, tokens: int) -> None:
        self.now += tokens

    def value(self, node: Retained, used_at: int) -> int:
        """Return the value of a node, the time until which it is kept; the least valuable is evicted first.
        `used_at`: time of the last use of the node, or of its states.
        """
        return used_at + (_CONTINUED_CREDIT if node.continued else _CREDIT) * node.end

    def newcomers(self, leaves: Iterable[Retained], budget: int) -> set[int]:
        """Return the ids of the latest leaves, which are evicted last, so that new prompts are cached at all.
        `budget`: maximum bytes of the whole cache.
        """
        kept: set[int] = set()
        room = budget // _NEWCOMER_SHARE
        for leaf in sorted(leaves, key=lambda leaf: leaf.used_at, reverse=True):
            room -= leaf.kv_bytes
            if room < 0:
                break
            kept.add(id(leaf))
        return kept


_WIDTH = 4  # Bytes of a token id


def pack(tokens: Sequence[int]) -> bytes:
    return array("I", tokens).tobytes()


@attrs.define(eq=False)
class Node:
    """A run of tokens that follows its parent's tokens.

    Args:
        tokens: Token ids, packed into bytes.
        kv: KV tensors of these tokens, for all per-token layers.
        states: States of all other layers after the last token; None without a checkpoint there.
        used_at: Time of the last read or write, as `RetentionPolicy` counts it.
        states_used_at: Time of the last use of `states`.
    """

    parent: Node | None
    start: int
    tokens: bytes
    kv: LayerTensors
    states: LayerTensors | None = None
    children: dict[bytes, Node] = attrs.field(factory=dict)
    used_at: int = 0
    states_used_at: int = 0
    kv_bytes: int = 0
    states_bytes: int = 0
    continued: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.tokens) // _WIDTH


@attrs.frozen
class Match:
    """Cached part of a prompt. `path`: nodes from the first token on; the last one may match only in part;
    `length`: number of shared tokens.
    """

    path: tuple[Node, ...]
    length: int

    def usable(self, stateful: bool) -> Match:
        """Return the part from which a prompt can continue. `stateful`: whether the model has recurrent or
        rotating layers.
        """
        if not stateful:
            return self
        for count in range(len(self.path), 0, -1):
            node = self.path[count - 1]
            if node.states is not None and node.end <= self.length:
                return Match(self.path[:count], node.end)
        return Match((), 0)


class PrefixTree:
    """Prefix tree of one key. `page`: page size in bytes, to which array sizes are rounded up."""

    def __init__(self, page: int, key: PrefixKey) -> None:
        self.root = Node(None, 0, b"", ())
        self.key = key
        self._page = page

    def match(self, tokens: bytes) -> Match:
        """Return the longest cached prefix of a prompt, given as packed token ids."""
        node, at, path = self.root, 0, list[Node]()
        while (child := node.children.get(tokens[at : at + _WIDTH])) is not None:
            path.append(child)
            count = common_length(child.tokens, tokens[at : at + len(child.tokens)])
            at += count
            if count < len(child.tokens):
                break
            node = child
        return Match(tuple(path), at // _WIDTH)

    def insert(self, parent: Node, tokens: bytes, kv: LayerTensors) -> Node:
        node = Node(parent, parent.end, tokens, kv, kv_bytes=nbytes_of(kv, self._page))
        parent.children[tokens[:_WIDTH]] = node
        return node

    def split(self, node: Node, length: int) -> Node:
        """Split a node so that its first part ends after `length` tokens of the prefix; return that part."""
        cut = length - node.start
        assert node.parent is not None
        front = self.insert(node.parent, node.tokens[: cut * _WIDTH], slice_kv(node.kv, 0, cut))
        front.used_at, front.continued = node.used_at, node.continued
        node.kv = slice_kv(node.kv, cut, node.end - node.start)
        node.kv_bytes = nbytes_of(node.kv, self._page)
        node.parent, node.start, node.tokens = front, length, node.tokens[cut * _WIDTH :]
        front.children[node.tokens[:_WIDTH]] = node
        return front

    def remove(self, node: Node) -> Node:
        """Remove a leaf; return its parent."""
        assert node.parent is not None
        assert not node.children
        del node.parent.children[node.tokens[:_WIDTH]]
        return node.parent

    def __iter__(self) -> Iterator[Node]:
        waiting = list(self.root.children.values())
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            yield node


def tokens_up_to(node: Node) -> bytes:
    parts, at = list[bytes](), node
    while at.parent is not None:
        parts.append(at.tokens)
        at = at.parent
    return b"".join(reversed(parts))


def common_length(one: bytes, other: bytes) -> int:
    """Return the length in bytes of the common prefix in whole token ids, by binary search on byte slices."""
    low, high = 0, min(len(one), len(other)) // _WIDTH
    if one[: high * _WIDTH] == other[: high * _WIDTH]:
        return high * _WIDTH
    while low < high - 1:
        middle = (low + high) // 2
        if one[low * _WIDTH : middle * _WIDTH] == other[low * _WIDTH : middle * _WIDTH]:
            low = middle
        else:
            high = middle
    return low * _WIDTH

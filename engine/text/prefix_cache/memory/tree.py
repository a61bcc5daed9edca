"""Radix tree of cached prefixes, in which a shared prefix is stored once."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import attrs

from greenroom.engine.text.prefix_cache.memory.kv_tensors import LayerTensors, nbytes_of, slice_kv

_WIDTH = 4
"""Bytes of a token id."""


def pack(tokens: Sequence[int]) -> bytes:
    """Pack token ids into bytes, which compare at memory speed."""
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
        continued: Whether a later prompt has continued the prefix.
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
    """Cached part of a prompt.

    Args:
        path: Nodes from the first token on; the last one may match only in part.
        length: Number of shared tokens.
    """

    path: tuple[Node, ...]
    length: int

    def usable(self, stateful: bool) -> Match:
        """Return the part from which a prompt can continue.

        Args:
            stateful: Whether the model has recurrent or rotating layers.
        """
        if not stateful:
            return self
        for count in range(len(self.path), 0, -1):
            node = self.path[count - 1]
            if node.states is not None and node.end <= self.length:
                return Match(self.path[:count], node.end)
        return Match((), 0)


class PrefixTree:
    """Prefix tree of one model.

    Args:
        page: Page size in bytes, to which array sizes are rounded up.
    """

    def __init__(self, page: int = 1) -> None:
        self.root = Node(None, 0, b"", ())
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
        """Add a run of tokens as a child of `parent`."""
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

    def remove(self, node: Node) -> None:
        """Remove a leaf."""
        assert node.parent is not None
        assert not node.children
        del node.parent.children[node.tokens[:_WIDTH]]

    def __iter__(self) -> Iterator[Node]:
        waiting = list(self.root.children.values())
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            yield node


def tokens_up_to(node: Node) -> bytes:
    """Return the packed tokens of a prefix, from the first one up to the end of a node."""
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

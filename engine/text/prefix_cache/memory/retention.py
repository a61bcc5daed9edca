"""Retention policy of cached prefixes: short ones that were used once leave first.

Agents send side requests (titles, summaries) between two turns of a session. By recency alone, a few of them
would evict the session, whose next turn would then be computed from its beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

_CREDIT = 2
"""Tokens of other prompts that a prefix outlives, per token of its own length."""

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
        """Count new tokens."""
        self.now += tokens

    def value(self, node: Retained, used_at: int) -> int:
        """Return the value of a node, the time until which it is kept; the least valuable is evicted first.

        Args:
            used_at: Time of the last use of the node, or of its states.
        """
        return used_at + (_CONTINUED_CREDIT if node.continued else _CREDIT) * node.end

    def newcomers(self, leaves: Iterable[Retained], budget: int) -> set[int]:
        """Return the ids of the latest leaves, which are evicted last, so that new prompts are cached at all.

        Args:
            budget: Maximum bytes of the whole cache.
        """
        kept: set[int] = set()
        room = budget // _NEWCOMER_SHARE
        for leaf in sorted(leaves, key=lambda leaf: leaf.used_at, reverse=True):
            room -= leaf.kv_bytes
            if room < 0:
                break
            kept.add(id(leaf))
        return kept

"""Prompts that arrive together and begin alike: one is computed first, the others continue from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from greenroom.engine.prefix_cache.client import MIN_TOKENS_RUNNING
from greenroom.engine.prefix_cache.memory.tree import common_length, pack
from greenroom.engine.sequences.sequence import Sequence


class PrefixSharing:
    """Which prompts under way others had better wait for.

    Args:
        remembers: Whether what is computed of a row's prompt will be there for others.
    """

    def __init__(self, remembers: Callable[[Sequence], bool]) -> None:
        self._is_cacheable = remembers
        self._packed: dict[Sequence, bytes] = {}
        self._shared: dict[Sequence, dict[Sequence, int]] = {}

    def start(self, row: Sequence, waiting: Iterable[Sequence]) -> set[int]:
        """A prompt is under way; returns how many tokens others begin with too."""
        if not self._is_cacheable(row):
            return set()
        self._shared[row] = {}
        return {self._compare(row, other) for other in waiting if other is not row} - {0}

    def add(self, row: Sequence) -> dict[Sequence, int]:
        """A prompt waits for its turn; returns how many tokens of which prompts under way it begins with."""
        return {leader: count for leader in self._shared if (count := self._compare(leader, row))}

    def remove(self, row: Sequence) -> None:
        """A prompt is computed, or nobody wants it any more."""
        self._shared.pop(row, None)
        self._packed.pop(row, None)
        for shared in self._shared.values():
            shared.pop(row, None)

    def should_wait(self, row: Sequence, known: int) -> bool:
        """Whether a prompt of which so many tokens are known gains by waiting for one that is under way."""
        return any(
            row in shared and shared[row] - known >= MIN_TOKENS_RUNNING for shared in self._shared.values()
        )

    def _compare(self, leader: Sequence, row: Sequence) -> int:
        if row.key != leader.key or not self._is_cacheable(row):
            return 0
        # The last token is never shared: it is each row's own first step.
        count = common_length(self._bytes(leader), self._bytes(row)) // 4
        if count >= MIN_TOKENS_RUNNING:
            self._shared[leader][row] = count
            return count
        return 0

    def _bytes(self, row: Sequence) -> bytes:
        if row not in self._packed:
            self._packed[row] = pack(row.prefill_tokens[:-1])
        return self._packed[row]

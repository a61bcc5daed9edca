"""Prompts that arrive together and have a prefix in common: one computes it, the others continue from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from greenroom.engine.prefix_cache.client import MIN_TOKENS_RUNNING
from greenroom.engine.prefix_cache.memory.tree import common_length, pack
from greenroom.engine.sequences.prefix_keys import prefill_keys
from greenroom.engine.sequences.sequence import Sequence


class PrefixSharing:
    """Which prompts under way others had better wait for.

    Args:
        is_cacheable: Whether what is computed of a sequence's prompt will be there for others.
    """

    def __init__(self, is_cacheable: Callable[[Sequence], bool]) -> None:
        self._is_cacheable = is_cacheable
        self._packed: dict[Sequence, bytes] = {}
        self._shared: dict[Sequence, dict[Sequence, int]] = {}

    def start(self, sequence: Sequence, waiting: Iterable[Sequence]) -> set[int]:
        """Mark a prompt as under way; return the lengths of the prefixes that waiting ones share with it."""
        if not self._is_cacheable(sequence):
            return set()
        self._shared[sequence] = {}
        return {self._compare(sequence, other) for other in waiting if other is not sequence} - {0}

    def add(self, sequence: Sequence) -> dict[Sequence, int]:
        """Compare a waiting prompt with those under way; return how many tokens it shares with which."""
        return {leader: count for leader in self._shared if (count := self._compare(leader, sequence))}

    def remove(self, sequence: Sequence) -> None:
        """Remove a prompt that is computed or cancelled."""
        self._shared.pop(sequence, None)
        self._packed.pop(sequence, None)
        for shared in self._shared.values():
            shared.pop(sequence, None)

    def should_wait(self, sequence: Sequence, cached: int) -> bool:
        """Return whether a prompt of which so many tokens are cached gains by waiting for one under way."""
        return any(
            sequence in shared and shared[sequence] - cached >= MIN_TOKENS_RUNNING
            for shared in self._shared.values()
        )

    def _compare(self, leader: Sequence, sequence: Sequence) -> int:
        if sequence.key != leader.key or not self._is_cacheable(sequence):
            return 0
        # The last token is never shared: it is each sequence's own first step.
        count = common_length(self._bytes(leader), self._bytes(sequence)) // 4
        if count >= MIN_TOKENS_RUNNING:
            self._shared[leader][sequence] = count
            return count
        return 0

    def _bytes(self, sequence: Sequence) -> bytes:
        if sequence not in self._packed:
            self._packed[sequence] = pack(prefill_keys(sequence)[:-1])
        return self._packed[sequence]

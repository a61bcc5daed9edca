"""In-flight prefix sharing: one of several prompts computes the common prefix, the others reuse it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from greenroom.engine.text.prefix_cache.client import MIN_TOKENS_RUNNING
from greenroom.engine.text.prefix_cache.memory.tree import common_length, pack
from greenroom.engine.text.sequences.prefix_keys import prefill_keys
from greenroom.engine.text.sequences.sequence import Sequence


class PrefixSharing:
    """Finds prompts in prefill whose prefix others should wait for.

    Args:
        is_cacheable: Predicate: whether a sequence's computed prompt enters the prefix cache.
    """

    def __init__(self, is_cacheable: Callable[[Sequence], bool]) -> None:
        self._is_cacheable = is_cacheable
        self._packed: dict[Sequence, bytes] = {}
        self._shared: dict[Sequence, dict[Sequence, int]] = {}

    def start(self, sequence: Sequence, waiting: Iterable[Sequence]) -> set[int]:
        """Mark a prompt as in prefill; return the lengths of the prefixes shared with waiting prompts."""
        if not self._is_cacheable(sequence):
            return set()
        self._shared[sequence] = {}
        return {self._compare(sequence, other) for other in waiting if other is not sequence} - {0}

    def add(self, sequence: Sequence) -> dict[Sequence, int]:
        """Compare a waiting prompt with those in prefill; return the shared tokens by sequence."""
        return {leader: count for leader in self._shared if (count := self._compare(leader, sequence))}

    def remove(self, sequence: Sequence) -> None:
        """Remove a prompt that is computed or cancelled."""
        self._shared.pop(sequence, None)
        self._packed.pop(sequence, None)
        for shared in self._shared.values():
            shared.pop(sequence, None)

    def should_wait(self, sequence: Sequence, cached: int) -> bool:
        """Return whether a prompt with `cached` tokens gains by waiting for one in prefill."""
        return any(
            sequence in shared and shared[sequence] - cached >= MIN_TOKENS_RUNNING
            for shared in self._shared.values()
        )

    def _compare(self, leader: Sequence, sequence: Sequence) -> int:
        if sequence.key != leader.key or not self._is_cacheable(sequence):
            return 0
        # The last token is never shared: it is the input of each sequence's own first decode step.
        count = common_length(self._bytes(leader), self._bytes(sequence)) // 4
        if count >= MIN_TOKENS_RUNNING:
            self._shared[leader][sequence] = count
            return count
        return 0

    def _bytes(self, sequence: Sequence) -> bytes:
        if sequence not in self._packed:
            self._packed[sequence] = pack(prefill_keys(sequence)[:-1])
        return self._packed[sequence]

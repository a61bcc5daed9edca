"""Prompt lookup decoding (Saxena, 2023): drafts repeat what followed an earlier occurrence of the text."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as GenericSequence

import mlx.core as mx

from greenroom.engine.text.sequences.sequence import Sequence

_NGRAM = 3
"""Number of last tokens that must match."""

_AT_ONCE = 512
"""Prompt tokens indexed per step, so that a long prompt delays no step."""


class PromptLookup:
    """Drafts the tokens that followed the latest earlier occurrence of the last tokens.

    Takes constant time per token.
    """

    nbytes = 0

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def has_memory(self, reserve: Callable[[int], bool]) -> bool:
        return True

    def begin(self, sequence: Sequence) -> None:
        self.reset()
        self._tokens = list(sequence.prompt)

    def add(self, tokens: GenericSequence[int]) -> None:
        self._tokens += tokens
        end = min(len(self._tokens), self._indexed + _AT_ONCE)
        # The last n-gram has no continuation yet, so it is not indexed.
        for place in range(max(self._indexed, _NGRAM), end):
            self._places[tuple(self._tokens[place - _NGRAM : place])] = place
        self._indexed = max(self._indexed, end)

    def can_draft(self) -> bool:
        return self._place() is not None

    def draft(self, count: int) -> mx.array:
        return mx.array(self.lookup(count), dtype=mx.uint32)

    def lookup(self, count: int) -> list[int]:
        """Return the tokens after the latest match; at the end of the text, go on at the match again."""
        place, tokens, length = self._place(), self._tokens, len(self._tokens)
        drafted: list[int] = []
        for at in range(place, place + count) if place is not None else ():
            drafted.append(tokens[at] if at < length else drafted[at - length])
        return drafted

    def prefill(self) -> bool:
        return False

    def reset(self) -> None:
        self._tokens, self._places, self._indexed = [], {}, 0

    def _place(self) -> int | None:
        """Return the index after the latest earlier match of the last tokens; None without a match."""
        if self._indexed < len(self._tokens):
            return None
        return self._places.get(tuple(self._tokens[-_NGRAM:]))

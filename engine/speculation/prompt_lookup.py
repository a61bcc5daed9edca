"""Drafts without a model: what followed where the text said the same before.

Known as prompt lookup decoding (Saxena, 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as GenericSequence

import mlx.core as mx

from greenroom.engine.sequences.sequence import Sequence

_NGRAM = 3
"""Tokens that have to be the same."""

_AT_ONCE = 512
"""Tokens of a prompt that are indexed in one step, so that a long one delays none."""


class PromptLookup:
    """Drafts the tokens that followed where prompt and answer said before what they say now.

    Constant work for every token.
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
        for place in range(max(self._indexed, _NGRAM), end):  # what ends the text: once something follows
            self._places[tuple(self._tokens[place - _NGRAM : place])] = place
        self._indexed = max(self._indexed, end)

    def can_draft(self) -> bool:
        return self._place() is not None

    def draft(self, count: int) -> mx.array:
        return mx.array(self.lookup(count), dtype=mx.uint32)

    def lookup(self, count: int) -> list[int]:
        """Return what followed the latest match; where text and draft meet, the draft repeats itself."""
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
        """Return the place after the latest text that equals the end of this one; None without one."""
        if self._indexed < len(self._tokens):
            return None
        return self._places.get(tuple(self._tokens[-_NGRAM:]))

"""Drafts without a model: what followed where the text said the same before.

Known as prompt lookup decoding (Saxena, 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

_SHORT, _LONG = 2, 3
"""Tokens that have to be the same: the latest place with three in a row is better than with two."""

_AT_ONCE = 512
"""Tokens of a prompt that are looked at in one step, so that a long one delays none."""

_LENGTHS = (3, 5, 9)
"""Tokens in a row that were the same, from which on the next ones are likelier to be."""

KINDS = len(_LENGTHS) + 1


class PromptLookup:
    """Where prompt and answer said before what they say now; constant work for every token.

    Args:
        prompt: Token ids, `[prompt]`.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self._tokens = list(prompt)
        self._indexed = 0
        self._places: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, tokens: Sequence[int]) -> None:
        """The answer has gone on."""
        self._tokens += tokens
        self._index()

    def find(self) -> tuple[int, int] | None:
        """The place after the latest text like the end of this one, and what kind of match it is.

        Returns:
            None if nothing is alike. Kinds are counted from 0; the higher, the longer the match.
        """
        if self._indexed < len(self._tokens):
            return None
        tokens = self._tokens
        for count in (_LONG, _SHORT):
            place = self._places.get(tuple(tokens[-count:]))
            if place is not None:
                return place, self._kind(place)
        return None

    def draft(self, place: int, count: int) -> list[int]:
        """Tokens that followed there; where text and draft meet, the draft repeats itself."""
        drafted: list[int] = []
        tokens, length = self._tokens, len(self._tokens)
        for at in range(place, place + count):
            drafted.append(tokens[at] if at < length else drafted[at - length])
        return drafted

    def _index(self) -> None:
        """Note places; what ends the text is noted once something follows."""
        tokens, places = self._tokens, self._places
        end = min(len(tokens), self._indexed + _AT_ONCE)
        for place in range(max(self._indexed, 1), end):
            if place >= _LONG:
                places[tuple(tokens[place - _LONG : place])] = place
            if place >= _SHORT:
                places[tuple(tokens[place - _SHORT : place])] = place
        self._indexed = end

    def _kind(self, place: int) -> int:
        tokens, end = self._tokens, len(self._tokens)
        same = 0
        while same < _LENGTHS[-1] and same < place and tokens[place - 1 - same] == tokens[end - 1 - same]:
            same += 1
        return sum(same >= length for length in _LENGTHS)

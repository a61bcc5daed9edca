"""Search for markers in free text without a grammar; most steps cost and forbid nothing.

Text in reasoning or before a tool call is free. Behind a marker, a grammar applies. A token that completes a
marker together with other text (`>{`) would bypass the grammar, so only such tokens are forbidden, and only
where they complete a marker; white space behind a marker is allowed. (A Knuth-Morris-Pratt automaton per
marker, over bytes.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from greenroom.engine.grammar.matching.token_mask import TokenMask, allow_all_but
from greenroom.engine.grammar.vocabulary.grammar_tokenizer import GrammarTokenizer

Position = tuple[int, ...]
"""Matched length of each marker at the end of the text, in bytes."""


class TriggerMatcher:
    """Finds the first of several markers in a token stream. Immutable, so requests share it.

    Args:
        tokenizer: Tokenizer of the token stream.
        markers: Markers to search for.
        forbidden: Tokens that must not precede a marker, e.g. those that end the answer.
    """

    def __init__(
        self, tokenizer: GrammarTokenizer, markers: Sequence[str], forbidden: Iterable[int] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._markers = [marker.encode() for marker in markers]
        self._fallbacks = [_fallbacks(marker) for marker in self._markers]
        self._forbidden = tuple(forbidden)
        self._masks: dict[Position, TokenMask | None] = {}
        self._always = allow_all_but(self._forbidden, tokenizer.mask_words) if self._forbidden else None
        self.start: Position = (0,) * len(self._markers)
        # Computed when the request is prepared, not between two decode steps.
        self._candidates = self._find_candidates()
        self.mask(self.start)

    def step(self, position: Position, token: int) -> tuple[Position, int | None]:
        """Return the position after the token, and the index of the marker it completed, if any."""
        position, found, _ = self._read(position, self._tokenizer.bytes_of(token))
        return position, found

    def mask(self, position: Position) -> TokenMask | None:
        """Return the tokens allowed next; None if all are."""
        if position not in self._masks:
            carried = [token for token in self._candidates if self._carries(position, token)]
            forbidden, size = [*self._forbidden, *carried], self._tokenizer.mask_words
            self._masks[position] = allow_all_but(forbidden, size) if carried else self._always
        return self._masks[position]

    def _find_candidates(self) -> list[int]:
        """Return the tokens with text other than white space behind the last byte of a marker."""
        lasts = {marker[-1:] for marker in self._markers}
        return [
            token
            for token, text in enumerate(self._tokenizer.token_bytes)
            if any(text[text.find(last) + 1 :].strip() for last in lasts if last in text)
        ]

    def _carries(self, position: Position, token: int) -> bool:
        text = self._tokenizer.token_bytes[token]
        _, found, end = self._read(position, text)
        return found is not None and bool(text[end:].strip())

    def _read(self, position: Position, text: bytes) -> tuple[Position, int | None, int]:
        matched = list(position)
        for end, byte in enumerate(text, 1):
            for index, marker in enumerate(self._markers):
                count = matched[index]
                while count and marker[count] != byte:
                    count = self._fallbacks[index][count - 1]
                matched[index] = count + (marker[count] == byte)
                if matched[index] == len(marker):
                    return self.start, index, end
        return tuple(matched), None, len(text)


def _fallbacks(marker: bytes) -> list[int]:
    """Return the KMP failure table: for each prefix, the length of its longest proper border."""
    table = [0] * len(marker)
    count = 0
    for index in range(1, len(marker)):
        while count and marker[index] != marker[count]:
            count = table[count - 1]
        count += marker[index] == marker[count]
        table[index] = count
    return table


def ends_inside_character(tail: bytes) -> bool:
    """Return whether the bytes end inside a UTF-8 character."""
    for back, byte in enumerate(reversed(tail[-3:]), 1):
        if byte < 0x80:
            return False
        if byte >= 0xC0:
            return back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
    return False

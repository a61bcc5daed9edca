"""Bit masks of the tokens allowed next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bitmask = NDArray[np.uint32]
"""Bits of the vocabulary, 32 tokens per word, lowest bit first: `[ceil(vocabulary / 32)]`."""


class TokenMask:
    """The tokens allowed next in one row.

    Args:
        words: One bit per token; immutable after construction.
        fixed: True if the mask recurs, so that its unpacked form is worth caching.
    """

    __slots__ = ("_dense", "fixed", "words")

    def __init__(self, words: Bitmask, fixed: bool = False) -> None:
        self.words = words
        self.fixed = fixed
        self._dense: tuple[int, Any] | None = None

    def allows(self, token: int) -> bool:
        """Return whether the token is allowed."""
        return bool(self.words[token >> 5] >> np.uint32(token & 31) & np.uint32(1))

    def tokens(self) -> NDArray[np.intp]:
        """Return the allowed tokens, in ascending order."""
        return np.flatnonzero(np.unpackbits(self.words.view(np.uint8), bitorder="little"))

    def dense(self, width: int) -> Any:
        """Return the mask as an MLX array `[width]` of booleans; False beyond the vocabulary."""
        import mlx.core as mx

        if self._dense is not None and self._dense[0] == width:
            return self._dense[1]
        count = min(width, 32 * len(self.words))
        bits = np.unpackbits(self.words.view(np.uint8), count=count, bitorder="little")
        if len(bits) < width:
            bits = np.concatenate([bits, np.zeros(width - len(bits), np.uint8)])
        dense = mx.array(bits.view(np.bool_))
        if self.fixed:
            self._dense = (width, dense)
        return dense


def allow_only(tokens: Iterable[int], mask_words: int) -> TokenMask:
    """Return a mask that allows these tokens and no others."""
    bits = np.zeros(mask_words, np.uint32)
    for token in tokens:
        bits[token >> 5] |= np.uint32(1 << (token & 31))
    return TokenMask(bits, fixed=True)


def allow_all_but(tokens: Iterable[int], mask_words: int) -> TokenMask:
    """Return a mask that allows every token except these."""
    return TokenMask(~allow_only(tokens, mask_words).words, fixed=True)

"""Text to token ids, without special tokens but for those that a text begins and ends with."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from greenroom.engine.tokenizer.text_pieces import PIECE, encode_in_pieces


class TextEncoder:
    """Encodes text for one thread, and lets other threads run meanwhile.

    Args:
        wrapped: mlx-lm's `TokenizerWrapper`.
    """

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self._backend = getattr(wrapped._tokenizer, "_tokenizer", None)
        if self._backend is not None:
            # What the tokenizer was saved with after training on padded batches would cut and pad prompts.
            self._backend.no_truncation()
            self._backend.no_padding()

    def pieces(self, text: str, *, special: bool = False, inside: bool = False) -> Iterator[list[int]]:
        """Yield the tokens of a text, those of a long one piece by piece.

        Args:
            special: With what a text begins and ends with.
            inside: It stands inside a text; SentencePiece would begin it with a space.
        """
        if len(text) <= PIECE:
            yield self.inside(text) if inside else self._encode(text, special=special)
            return
        prefix, suffix = self.special_tokens if special else ([], [])
        yield prefix
        encode = self.inside if inside else self._encode
        yield from encode_in_pieces(text, encode, self.inside, anywhere=not self._is_unigram)
        yield suffix

    def inside(self, text: str) -> list[int]:
        """Return the tokens of a text inside a prompt."""
        tokens = self._encode("\n" + text)
        head = len(self.newline)
        return tokens[head:] if tokens[:head] == self.newline else self._encode(text)

    @property
    def _is_unigram(self) -> bool:
        return self._backend is not None and type(self._backend.model).__name__ == "Unigram"

    @functools.cached_property
    def newline(self) -> list[int]:
        """The tokens of a line's end."""
        return self._encode("\n")

    @functools.cached_property
    def special_tokens(self) -> tuple[list[int], list[int]]:
        """What a text begins with, and what it ends with."""
        plain, special = self._encode("a"), self._encode("a", special=True)
        starts = range(len(special) - len(plain) + 1)
        at = next((i for i in starts if special[i : i + len(plain)] == plain), 0)
        return special[:at], special[at + len(plain) :]

    def _encode(self, text: str, *, special: bool = False) -> list[int]:
        if self._backend is None:
            return list(self._wrapped.encode(text, add_special_tokens=special))
        # The batch form is the one that lets other threads run: `encode` holds the GIL throughout.
        encoded = self._backend.encode_batch_fast([text], add_special_tokens=special)[0]
        tokens: list[int] = encoded.ids
        return tokens

"""Tokenization of text, without special tokens except those at its start and end."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from greenroom.engine.tokenizer.text_pieces import PIECE, encode_in_pieces


class TextEncoder:
    """Encodes text for one thread, without blocking other threads.

    Args:
        wrapped: mlx-lm's `TokenizerWrapper`.
    """

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self._backend = getattr(wrapped._tokenizer, "_tokenizer", None)
        if self._backend is not None:
            # Settings saved after training on padded batches would truncate and pad prompts.
            self._backend.no_truncation()
            self._backend.no_padding()

    def pieces(self, text: str, *, special: bool = False, inside: bool = False) -> Iterator[list[int]]:
        """Yield the token ids of a text, piece by piece if it is long.

        Args:
            text: Text to encode.
            special: True to add the special tokens at the text's start and end.
            inside: True if other text precedes it; SentencePiece would otherwise prepend a space.
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
        """Return the token ids of a text inside a prompt."""
        tokens = self._encode("\n" + text)
        head = len(self.newline)
        return tokens[head:] if tokens[:head] == self.newline else self._encode(text)

    @property
    def _is_unigram(self) -> bool:
        return self._backend is not None and type(self._backend.model).__name__ == "Unigram"

    @functools.cached_property
    def newline(self) -> list[int]:
        """Token ids of a line break."""
        return self._encode("\n")

    @functools.cached_property
    def special_tokens(self) -> tuple[list[int], list[int]]:
        """Special tokens at the start and at the end of a text."""
        plain, special = self._encode("a"), self._encode("a", special=True)
        starts = range(len(special) - len(plain) + 1)
        at = next((i for i in starts if special[i : i + len(plain)] == plain), 0)
        return special[:at], special[at + len(plain) :]

    def _encode(self, text: str, *, special: bool = False) -> list[int]:
        if self._backend is None:
            return list(self._wrapped.encode(text, add_special_tokens=special))
        # The batch function lets other threads run; `encode` holds the GIL throughout.
        encoded = self._backend.encode_batch_fast([text], add_special_tokens=special)[0]
        tokens: list[int] = encoded.ids
        return tokens

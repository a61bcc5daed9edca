"""A tokenizer's tokens by name, looked up one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Vocabulary(Mapping[str, int]):
    """Token ids by name, including added tokens.

    The libraries copy the whole vocabulary for each query, with the GIL held: 0.15 s for 152,000 tokens. Here
    a query costs only its own look-ups, and other threads run during iteration.

    Args:
        backend: A `tokenizers.Tokenizer`.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getitem__(self, name: str) -> int:
        ident: int | None = self._backend.token_to_id(name)
        if ident is None:
            raise KeyError(name)
        return ident

    def __iter__(self) -> Iterator[str]:
        # Ids may have gaps.
        missing, ident, size = 0, 0, len(self)
        while ident - missing < size and missing <= size:
            name = self._backend.id_to_token(ident)
            if name is None:
                missing += 1
            else:
                yield name
            ident += 1

    def __len__(self) -> int:
        size: int = self._backend.get_vocab_size(with_added_tokens=True)
        return size


def vocabulary_of(tokenizer: Any) -> Mapping[str, int]:
    """Return the vocabulary of a transformers tokenizer, or of mlx-lm's wrapper around one."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if hasattr(backend, "token_to_id"):
        return Vocabulary(backend)
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    return vocabulary

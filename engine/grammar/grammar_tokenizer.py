"""A model's tokenizer as grammars see it: every token as the bytes that it writes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from greenroom.schemas.problems import Problem, ProblemError


class GrammarTokenizer:
    """llguidance's view of a tokenizer: built once per model, about a second for 150,000 tokens.

    Safe to share: what is made from it may go on in another thread.

    Args:
        tokenizer: A transformers fast tokenizer, mlx-lm's wrapper around one, or a `tokenizers.Tokenizer`.
        stop_token_ids: Tokens that end an answer; a grammar allows them where it may end.

    Raises:
        ProblemError: 400 `unsupported_tokenizer`: the tokenizer has no fast form.
    """

    def __init__(self, tokenizer: Any, stop_token_ids: Iterable[int]) -> None:
        import llguidance

        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not hasattr(backend, "to_str"):
            raise _unsupported("it has no fast form")
        size = backend.get_vocab_size(with_added_tokens=True)
        self.stop_token_ids = tuple(sorted(ident for ident in set(stop_token_ids) if 0 <= ident < size))
        try:
            written = _write_without_limits(backend)
            self.inner = llguidance.LLTokenizer(written, eos_token=list(self.stop_token_ids) or None)
        except Exception as error:  # Rust reports a foreign tokenizer in many ways
            raise _unsupported(str(error)) from error
        self.size: int = self.inner.vocab_size
        self.mask_words = (self.size + 31) // 32
        self._added = {token.content: ident for ident, token in backend.get_added_tokens_decoder().items()}

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """What each token writes, special tokens by their names."""
        decode = self.inner.decode_bytes
        return [decode([ident]) for ident in range(self.size)]

    def special(self, text: str) -> int | None:
        """Return the id of the special token that is written so; None if ordinary tokens spell the text."""
        ident = self._added.get(text)
        return ident if ident is not None and self.inner.is_special_token(ident) else None

    def split_specials(self, text: str) -> list[str | int]:
        """Return the text in pieces: ids of the special tokens in it, and what stands between."""
        pieces = [piece for piece in self._specials.split(text) if piece]
        return [piece if (ident := self.special(piece)) is None else ident for piece in pieces]

    @cached_property
    def _specials(self) -> re.Pattern[str]:
        longest_first = sorted(filter(self.special, self._added), key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})" if longest_first else r"(?!)")

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the tokens of the text, special ones included."""
        return tuple(self.inner.tokenize_str(text, parse_special=True))


def _write_without_limits(backend: Any) -> str:
    """Return a tokenizer as JSON, without padding and truncation; a copy would take half a second."""
    padding, truncation = backend.padding, backend.truncation
    backend.no_padding()
    backend.no_truncation()
    try:
        return str(backend.to_str())
    finally:
        if padding is not None:
            backend.enable_padding(**padding)
        if truncation is not None:
            backend.enable_truncation(**truncation)


def _unsupported(why: str) -> ProblemError:
    detail = f"Structured output is not available with this model's tokenizer: {why}"
    return ProblemError(Problem(400, "unsupported_tokenizer", detail))

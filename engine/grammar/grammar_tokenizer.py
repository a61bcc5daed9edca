"""A model's tokenizer in the form that grammars need: every token as its bytes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cache, cached_property
from typing import Any

from greenroom.engine.grammar.c_interface import TokenTrie
from greenroom.engine.tokenizer.detokenizer import Vocabulary, is_special, name_reader
from greenroom.schemas.problems import Problem, ProblemError


class GrammarTokenizer:
    """llguidance's form of a tokenizer, built once per model; takes about 1 s for 150,000 tokens.

    Other threads run meanwhile: long parts are loops, or Rust code without the GIL. It may be shared between
    threads.

    Args:
        tokenizer: A transformers fast tokenizer, mlx-lm's wrapper around one, or a `tokenizers.Tokenizer`.
        stop_token_ids: Tokens that end an answer; a grammar allows them where the answer may end.

    Raises:
        ProblemError: 400 `unsupported_tokenizer` if the tokenizer has no fast form.
    """

    def __init__(self, tokenizer: Any, stop_token_ids: Iterable[int]) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not hasattr(backend, "to_str"):
            raise _unsupported("it has no fast form")
        added = backend.get_added_tokens_decoder()
        self._special = {token.content: ident for ident, token in added.items() if is_special(token)}
        special = set(self._special.values())
        try:
            self.token_bytes = _token_bytes(backend, special)
            self.size = len(self.token_bytes)
            ids = range(self.size)
            self.stop_token_ids = tuple(sorted(ident for ident in {*stop_token_ids} if ident in ids))
            self.trie = TokenTrie(self.token_bytes, special, self.stop_token_ids or (0,))
        except ValueError as error:
            raise _unsupported(str(error)) from error
        self.mask_words = (self.size + 31) // 32
        self._backend = backend

    def bytes_of(self, token: int) -> bytes:
        """Return a sampled token's bytes: none for an id that only pads the model's vocabulary."""
        return self.token_bytes[token] if token < self.size else b""

    def special(self, text: str) -> int | None:
        """Return the id of the special token with this name; None if ordinary tokens spell the text."""
        return self._special.get(text)

    def split_specials(self, text: str) -> list[str | int]:
        """Return the text in pieces: ids of special tokens, and the text between them."""
        pieces = [piece for piece in self._specials.split(text) if piece]
        return [piece if (ident := self.special(piece)) is None else ident for piece in pieces]

    @cached_property
    def _specials(self) -> re.Pattern[str]:
        longest_first = sorted(self._special, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})" if longest_first else r"(?!)")

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the text's token ids, including special tokens. Only for the tokenizer's thread."""
        tokens: list[int] = []
        for piece in self.split_specials(text):
            tokens += [piece] if isinstance(piece, int) else self._encode_plain(piece)
        return tuple(tokens)

    def _encode_plain(self, text: str) -> list[int]:
        """Return a text's token ids without the space that some tokenizers prepend."""
        wanted = text.encode()
        tokens: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        while tokens and b"".join(self.token_bytes[token] for token in tokens) != wanted:
            tokens = tokens[1:]
        return tokens or self._encode_greedily(wanted)

    def _encode_greedily(self, text: bytes) -> list[int]:
        by_bytes = {written: ident for ident, written in enumerate(self.token_bytes) if written in text}
        tokens: list[int] = []
        while text:
            beginnings = (text[:end] for end in range(len(text), 0, -1))
            written = next((beginning for beginning in beginnings if beginning in by_bytes), None)
            if written is None:
                raise _unsupported(f"it cannot write {text!r}")
            tokens.append(by_bytes[written])
            text = text[len(written) :]
        return tokens


def _token_bytes(backend: Any, special: Collection[int]) -> list[bytes]:
    """Return each token's bytes: names of special tokens, and nothing for ids without a token.

    The loop is in Python so that other threads run meanwhile; it takes 0.2 s for 150,000 tokens.

    Raises:
        ValueError: The tokenizer's decoder is not supported.
    """
    read = name_reader(backend)
    added = {ident: token.content for ident, token in backend.get_added_tokens_decoder().items()}
    texts: list[bytes] = []
    for ident, name in enumerate(Vocabulary(backend).names()):
        if name is None:
            texts.append(b"")
        elif ident in special:
            texts.append(name.encode())
        else:
            text = read(name)
            texts.append(added.get(ident, "").encode() if text is None else text)
    return texts


def _unsupported(why: str) -> ProblemError:
    detail = f"Structured output is not available with this model's tokenizer: {why}"
    return ProblemError(Problem(400, "unsupported_tokenizer", detail))


END = 256  # Id of the token that ends a text, after those of the bytes


@cache
def single_bytes() -> TokenTrie:
    """Return the vocabulary of all single bytes and an end token."""
    return TokenTrie([*(bytes([byte]) for byte in range(256)), b"<end>"], {END}, [END])

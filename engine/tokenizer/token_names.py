"""Text and bytes of single tokens, read from their names by the kind of the tokenizer's decoder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from greenroom.engine.tokenizer.vocabulary import vocabulary_of
from greenroom.schemas.events.events import Token

NameReader = Callable[[str], bytes | None]
"""A function from a token's name to its bytes; None where no letter of the name stands for a byte."""

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


class TokenNames:
    """Text and bytes of each token, cached per token.

    Args:
        wrapped: mlx-lm's `TokenizerWrapper`.
    """

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self._tokens: dict[int, Token] = {}
        self._special = {ident for ident, token in wrapped.added_tokens_decoder.items() if is_special(token)}
        self._read = _reader_of(wrapped)

    def look_up(self, ident: int) -> Token:
        """Return the token with this id; an id without a name, which pads the vocabulary, has no text."""
        token = self._tokens.get(ident)
        if token is None:
            written = self._bytes(ident)
            token = self._tokens[ident] = Token(written.decode("utf-8", "replace"), written)
        return token

    def _bytes(self, ident: int) -> bytes:
        name = self._wrapped.convert_ids_to_tokens(ident) if ident < len(self._wrapped) else None
        if not name:
            return b""
        read = None if ident in self._special else self._read(str(name))
        return str(name).encode() if read is None else read


def name_reader(backend: Any) -> NameReader:
    """Return the function that reads names as the tokenizer's decoder does.

    A vocabulary's letters say nothing: large ones of SentencePiece have the letters of byte-level ones, too.

    Args:
        backend: A `tokenizers.Tokenizer`.

    Raises:
        ValueError: The tokenizer's decoder is not supported.
    """
    decoders = _decoders(json.loads(backend.decoder.__getstate__()) if backend.decoder else {})
    kinds = {decoder.get("type") for decoder in decoders}
    if "ByteFallback" in kinds:
        return _byte_fallback(next((sign for decoder in decoders if (sign := _sign_of_space(decoder))), " "))
    if "ByteLevel" in kinds:
        return _byte_level
    raise ValueError(f"its decoder is of another kind ({', '.join(map(str, kinds)) or 'none'})")


def is_special(token: Any) -> bool:
    """Return whether an added token's name is not text: special, or unmarked but of the form `<…>`."""
    return bool(token.special or (token.content.startswith("<") and token.content.endswith(">")))


def byte_alphabet() -> dict[str, int]:
    """Return the bytes of byte-level tokenizers' characters (the inverse of GPT-2's table)."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(others)}


_LETTERS = byte_alphabet()


def _reader_of(wrapped: Any) -> NameReader:
    """Return the reader of a tokenizer of transformers, also of one with an unknown or without a decoder."""
    backend = getattr(wrapped, "backend_tokenizer", None)
    if hasattr(backend, "decoder"):
        try:
            return name_reader(backend)
        except ValueError:
            return _byte_fallback(_SPACE)
    vocabulary = vocabulary_of(wrapped)
    return _byte_level if "Ġ" in vocabulary and _SPACE not in vocabulary else _byte_fallback(_SPACE)


def _decoders(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    if decoder.get("type") == "Sequence":
        return [inner for each in decoder["decoders"] for inner in _decoders(each)]
    return [decoder]


def _sign_of_space(decoder: dict[str, Any]) -> str | None:
    """Return the letter that a decoder replaces with a space."""
    if decoder.get("type") != "Replace" or decoder.get("content") != " ":
        return None
    sign = decoder["pattern"].get("String")
    return sign if sign is not None and len(sign) == 1 else None


def _byte_level(name: str) -> bytes | None:
    try:
        return bytes([_LETTERS[letter] for letter in name])
    except KeyError:
        return None


def _byte_fallback(space: str) -> NameReader:
    def read(name: str) -> bytes:
        if byte := _BYTE.fullmatch(name):
            return bytes([int(byte[1], 16)])
        return name.replace(space, " ").encode()

    return read

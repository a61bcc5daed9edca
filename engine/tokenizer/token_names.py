"""Single tokens as shown to clients in log-probabilities."""

from __future__ import annotations

import re
from typing import Any

from greenroom.engine.tokenizer.vocabulary import vocabulary_of
from greenroom.schemas.events.events import Token

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenNames:
    """Text and bytes of each token, cached per token.

    Args:
        wrapped: mlx-lm's `TokenizerWrapper`.
    """

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self._tokens: dict[int, Token] = {}
        self._added = {ident: token.content for ident, token in wrapped.added_tokens_decoder.items()}
        self._byte_of = byte_alphabet() if _writes_bytes(wrapped) else None

    def look_up(self, ident: int) -> Token:
        """Return the token with this id; an id without a name, which pads the vocabulary, has no text."""
        token = self._tokens.get(ident)
        if token is None:
            written = self._bytes(ident)
            token = self._tokens[ident] = Token(written.decode("utf-8", "replace"), written)
        return token

    def _bytes(self, ident: int) -> bytes:
        if ident in self._added:
            return str(self._added[ident]).encode()
        piece = self._wrapped.convert_ids_to_tokens(ident) if ident < len(self._wrapped) else None
        if not piece:
            return b""
        if self._byte_of is not None:
            return b"".join(
                bytes([self._byte_of[c]]) if c in self._byte_of else c.encode() for c in str(piece)
            )
        if byte := _BYTE.fullmatch(piece):
            return bytes([int(byte[1], 16)])
        return str(piece).replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode()


def byte_alphabet() -> dict[str, int]:
    """Return the bytes of byte-level tokenizers' characters (the inverse of GPT-2's table)."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _writes_bytes(wrapped: Any) -> bool:
    """Return whether the vocabulary is byte-level, which shows in its characters for white space."""
    vocabulary = vocabulary_of(wrapped)
    return "Ġ" in vocabulary or "Ċ" in vocabulary

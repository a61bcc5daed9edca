"""The bytes of each token, decoded from token names in which letters stand for bytes."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any


def token_bytes(backend: Any, special: Collection[int]) -> list[bytes]:
    """Return each token's bytes: names of special tokens, and nothing for ids without a token.

    The loop is in Python so that other threads run meanwhile; it takes 0.2 s for 150,000 tokens.

    Args:
        backend: A `tokenizers.Tokenizer`.
        special: Ids of tokens whose names are not text.

    Raises:
        ValueError: The tokenizer's decoder is not supported.
    """
    decoders = _decoders(json.loads(backend.decoder.__getstate__()) if backend.decoder else {})
    kinds = {decoder.get("type") for decoder in decoders}
    added = {ident: token.content for ident, token in backend.get_added_tokens_decoder().items()}
    if "ByteFallback" in kinds:
        space = next((sign for decoder in decoders if (sign := _sign_of_space(decoder))), " ")
        read = _byte_fallback(space)
    elif "ByteLevel" in kinds:
        read = _byte_level
    else:
        raise ValueError(f"its decoder is of another kind ({', '.join(map(str, kinds)) or 'none'})")
    texts: list[bytes] = []
    for ident in range(backend.get_vocab_size(with_added_tokens=True)):
        name = backend.id_to_token(ident)
        if name is None:
            texts.append(b"")
        elif ident in special:
            texts.append(name.encode())
        else:
            text = read(name)
            texts.append(added.get(ident, "").encode() if text is None else text)
    return texts


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


def _byte_of_letter() -> dict[str, int]:
    """Return GPT-2's map of letters to bytes: printable bytes are themselves, others start at U+0100."""
    bytes_of, following = {}, 0x100
    for byte in range(256):
        letter = chr(byte)
        if "!" <= letter <= "~" or "\xa1" <= letter <= "\xac" or "\xae" <= letter <= "\xff":
            bytes_of[letter] = byte
        else:
            bytes_of[chr(following)] = byte
            following += 1
    return bytes_of


_LETTERS = _byte_of_letter()


def _byte_level(name: str) -> bytes | None:
    try:
        return bytes([_LETTERS[letter] for letter in name])
    except KeyError:
        return None


def _byte_fallback(space: str) -> Any:
    def read(name: str) -> bytes:
        if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
            return bytes([int(name[3:5], 16)])
        return name.replace(space, " ").encode()

    return read

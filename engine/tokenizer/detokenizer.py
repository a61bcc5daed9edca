"""Tokens to text as they stream: by the bytes of each, or by mlx-lm's detokenizer for odd vocabularies."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from greenroom.schemas.events.events import Token

_MAX_KEPT_CHARACTERS = 256  # Limit on the text kept after it was read, in characters


class ByteDetokenizer:
    """Joins the bytes of tokens; a character waits for its last byte.

    mlx-lm's detokenizers for these vocabularies lose the byte 0, the first space of byte-level answers, and
    ids that only pad the vocabulary: those are "!" or an error there, and nothing here.

    Args:
        bytes_of: Function that returns the bytes of a token.
        trims_space: True if the first space is the vocabulary's own and not the text's.
    """

    def __init__(self, bytes_of: Callable[[int], bytes], trims_space: bool) -> None:
        self._bytes_of = bytes_of
        self._trims_space = trims_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unread = ""

    @property
    def last_segment(self) -> str:
        text, self._unread = self._unread, ""
        return text

    def add_token(self, token: int) -> None:
        text = self._decoder.decode(self._bytes_of(token))
        if text and self._trims_space:
            text, self._trims_space = text.removeprefix(" "), False
        self._unread += text

    def finalize(self) -> None:
        """Flush the bytes of an incomplete character."""
        self._unread += self._decoder.decode(b"", True)


class BoundedDetokenizer:
    """Removes text from a detokenizer once it has been read.

    mlx-lm's detokenizers append to one string, so every token copies the answer so far: 85 of the 105 µs of
    host time per token in a 3,000-character answer.

    Args:
        inner: One of mlx-lm's detokenizers, for one request.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._text = "_text" if hasattr(inner, "_text") else "text"

    @property
    def last_segment(self) -> str:
        inner = self._inner
        segment: str = inner.last_segment
        if inner.offset > _MAX_KEPT_CHARACTERS:
            text = getattr(inner, self._text)
            # One character stays, because a detokenizer strips a space only at the very start.
            removed = min(inner.offset, len(text)) - 1
            if removed > 0:
                setattr(inner, self._text, text[removed:])
                inner.offset -= removed
                inner.tokens.clear()
        return segment

    def add_token(self, token: int) -> None:
        self._inner.add_token(token)

    def finalize(self) -> None:
        self._inner.finalize()


NameReader = Callable[[str], bytes | None]
"""A function from a token's name to its bytes; None where no letter of the name stands for a byte."""

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


class TokenNames:
    """Text and bytes of each token, cached per token. `wrapped`: mlx-lm's `TokenizerWrapper`."""

    def __init__(self, wrapped: Any) -> None:
        self._tokens: dict[int, Token] = {}
        self._special = {ident for ident, token in wrapped.added_tokens_decoder.items() if is_special(token)}
        self._read = _reader_of(wrapped)
        size = len(wrapped)  # each count goes through all added tokens: 0.5 ms for Gemma
        self._name_of: Callable[[int], Any] = getattr(
            getattr(wrapped, "backend_tokenizer", None),
            "id_to_token",
            lambda ident: wrapped.convert_ids_to_tokens(ident) if ident < size else None,
        )

    def look_up(self, ident: int) -> Token:
        """Return the token with this id; an id without a name, which pads the vocabulary, has no text."""
        token = self._tokens.get(ident)
        if token is None:
            written = self._bytes(ident)
            token = self._tokens[ident] = Token(written.decode("utf-8", "replace"), written)
        return token

    def _bytes(self, ident: int) -> bytes:
        name = self._name_of(ident)
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
        return (name for name in self.names() if name is not None)

    def names(self) -> Iterator[str | None]:
        """Yield the name of each id up to the highest; None in the gaps between ids."""
        missing, ident, size = 0, 0, len(self)
        while ident - missing < size and missing <= size:
            name: str | None = self._backend.id_to_token(ident)
            missing += name is None
            ident += 1
            yield name

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

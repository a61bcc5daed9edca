"""Request bodies of `POST /v1/embeddings`. Source: OpenAI's API reference, August 2026."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.schemas.openai.converter import OPENAI
from greenroom.schemas.wire import WireError, one_of, wrong_type

MAX_TEXTS = 16_384
"""Maximum number of texts in a request. OpenAI accepts 2,048, but Greenroom needs no bound that low."""

EXPECTED = "must be a string, an array of strings, an array of token ids, or arrays of token ids"


@attrs.frozen
class Texts:
    """The texts to embed; each yields one vector."""

    texts: tuple[str | tuple[int, ...], ...]


@attrs.frozen
class EncodingFormat:
    """The encoding of vectors: `float`, or `base64` of little-endian float32."""

    name: str


@attrs.frozen
class Truncate:
    """Truncation of long texts at their end: a boolean, or `END` or `NONE` in other servers' terms."""

    cut: bool


@attrs.frozen
class EmbeddingsRequest:
    """The body of an embedding request; `input_type`, `instruction` and `truncate` are extensions."""

    model: str
    input: Texts
    encoding_format: EncodingFormat | None = None
    dimensions: int | None = None
    input_type: str | None = None
    instruction: str | None = None
    truncate: Truncate | None = None


def _texts(value: Any, _: Any) -> Texts:
    if isinstance(value, str):
        value = [value] if value else value
    elif not isinstance(value, list):
        raise wrong_type(EXPECTED.removeprefix("must be "), value)
    if not value:
        raise WireError("must not be empty")
    if type(value[0]) is int:
        return Texts((_tokens(value),))
    if len(value) > MAX_TEXTS:
        raise WireError(f"must hold at most {MAX_TEXTS} texts, but has {len(value)}")
    return Texts(tuple(item if isinstance(item, str) else _tokens(item) for item in value))


def _tokens(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise WireError(EXPECTED)
    return tuple(value)


def _encoding_format(value: Any, _: Any) -> EncodingFormat:
    return EncodingFormat(one_of(("float", "base64"), value))


def _truncate(value: Any, _: Any) -> Truncate:
    if isinstance(value, bool):
        return Truncate(value)
    if value not in ("NONE", "END"):
        raise WireError("must be true, false, 'NONE' or 'END'")
    return Truncate(value == "END")


OPENAI.register_structure_hook(Texts, _texts)
OPENAI.register_structure_hook(EncodingFormat, _encoding_format)
OPENAI.register_structure_hook(Truncate, _truncate)

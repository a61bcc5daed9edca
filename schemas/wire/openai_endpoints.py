"""Request bodies of OpenAI's embeddings, speech, transcriptions and tokens (API reference, August 2026)."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from greenroom.schemas.wire.openai_chat import OPENAI
from greenroom.schemas.wire.wire import WireError, wrong_type

MAX_TEXTS = 16_384
"""Maximum number of texts in a request. OpenAI accepts 2,048, but Greenroom needs no bound that low."""

EXPECTED = "must be a string, an array of strings, an array of token ids, or arrays of token ids"


@attrs.frozen
class Texts:
    """The texts to embed; each yields one vector."""

    texts: tuple[str | tuple[int, ...], ...]


@attrs.frozen
class Truncate:
    """Truncation of long texts at their end: a boolean, or `END` or `NONE` in other servers' terms."""

    cut: bool


@attrs.frozen
class EmbeddingsRequest:
    """The body of an embedding request; `input_type`, `instruction` and `truncate` are extensions.

    Args:
        encoding_format: Encoding of vectors: `float`, or `base64` of little-endian float32.
    """

    model: str
    input: Texts
    encoding_format: Literal["float", "base64"] | None = None
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


def _truncate(value: Any, _: Any) -> Truncate:
    if isinstance(value, bool):
        return Truncate(value)
    if value not in ("NONE", "END"):
        raise WireError("must be true, false, 'NONE' or 'END'")
    return Truncate(value == "END")


OPENAI.register_structure_hook(Texts, _texts)
OPENAI.register_structure_hook(Truncate, _truncate)


@attrs.frozen
class Voice:
    """A voice name, sent as a string or as an object with an `id`."""

    name: str


@attrs.frozen
class SpeechRequest:
    """The body of a speech request; the fields from `language` on are extensions of mlx-audio's server.

    Args:
        input: Text to speak.
        lang_code: Alias of `language`.
        ref_audio: Recording of a voice to imitate, as base64 or a `data:` URL.
        ref_text: Transcript of the recording.
    """

    model: str
    input: str
    voice: Voice | None = None
    response_format: str | None = None
    speed: float | None = None
    instructions: str | None = None
    stream_format: str | None = None
    language: str | None = None
    lang_code: str | None = None
    ref_audio: str | None = None
    ref_text: str | None = None


def _voice(value: Any, _: Any) -> Voice:
    if isinstance(value, dict):
        if not isinstance(value.get("id"), str):
            raise WireError("must be the name of a voice, or an object whose `id` is one")
        return Voice(value["id"])
    if not isinstance(value, str):
        raise wrong_type("a string or an object", value)
    return Voice(value)


OPENAI.register_structure_hook(Voice, _voice)


@attrs.frozen
class TokenizeRequest:
    """Text to tokenize, under vLLM's name (`prompt`) or llama.cpp's (`content`).

    With `messages` it is a chat request (`greenroom.schemas.wire.openai_chat`) instead.

    Args:
        add_special_tokens: Flag for `prompt` that adds the initial special tokens; true by default (vLLM).
        add_special: The same flag for `content`; false by default (llama.cpp).
        return_token_strs: Flag that also requests each token's text.
        with_pieces: The same flag in llama.cpp's form, where each token becomes an object.
    """

    model: str = "default"
    prompt: str | None = None
    content: str | None = None
    add_special_tokens: bool | None = None
    add_special: bool | None = None
    return_token_strs: bool | None = None
    with_pieces: bool | None = None


@attrs.frozen
class DetokenizeRequest:
    """Token ids to convert into text."""

    tokens: tuple[int, ...]
    model: str = "default"


@attrs.frozen
class TranscriptionRequest:
    """The form fields of a transcription, under OpenAI's names.

    Args:
        timestamp_granularities: Requested timestamps: `word`, `segment` or both.
    """

    model: str
    language: str | None = None
    prompt: str = ""
    response_format: str = "json"
    temperature: float | None = None
    timestamp_granularities: tuple[str, ...] = ()
    stream: bool = False

    @property
    def wants_words(self) -> bool:
        return "word" in self.timestamp_granularities

    @property
    def wants_segments(self) -> bool:
        """True if segments are requested, as they are by default."""
        return not self.timestamp_granularities or "segment" in self.timestamp_granularities

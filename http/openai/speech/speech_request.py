"""Parsing of `POST /v1/audio/speech` into a protocol-independent request."""

from __future__ import annotations

import base64
import binascii
import math
import re

import attrs

from greenroom.http.answering.requests.request_parameters import parse_model_key
from greenroom.http.media.audio.audio_formats import AUDIO_FORMATS, AudioFormat
from greenroom.schemas.messages.requests import InferenceRequest, SpeechInput
from greenroom.schemas.openai.speech import SpeechRequest
from greenroom.schemas.problems import invalid
from greenroom.schemas.settings.setting_fields import MEGABYTE

MAX_REFERENCE_BYTES = 10 * MEGABYTE
"""Size limit of decoded reference audio, in bytes; a minute of stereo WAV at 48 kHz has 11.5 MB."""

STREAM_FORMATS = ("audio", "sse")

_DATA_URL = re.compile(r"data:[\w.+/;=-]{0,100};base64,")


def parse_speech_request(wire: SpeechRequest, request_id: str, client: str) -> InferenceRequest:
    """Parse a speech request into a protocol-independent one, without its reference audio.

    Args:
        client: See `InferenceRequest`.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if wire.language is not None and wire.lang_code is not None and wire.language != wire.lang_code:
        raise invalid("`language` and `lang_code` name different languages: send one of them.", "lang_code")
    speed = 1.0 if wire.speed is None else wire.speed
    if not math.isfinite(speed):
        raise invalid("`speed` must be a number.", "speed")
    speech = SpeechInput(
        wire.input,
        voice=None if wire.voice is None else wire.voice.name,
        speed=speed,
        instructions=wire.instructions or "",
        language=wire.language if wire.language is not None else wire.lang_code,
        reference_text=wire.ref_text,
    )
    return InferenceRequest(request_id, parse_model_key(wire.model), speech, client=client)


def decode_reference(wire: SpeechRequest) -> bytes | None:
    """Return the reference audio for voice cloning, as the bytes of an audio file.

    Raises:
        ProblemError: 400: it is not base64, or too large.
    """
    if wire.ref_audio is None:
        return None
    start = _DATA_URL.match(wire.ref_audio[:200])
    encoded = wire.ref_audio[start.end() :] if start is not None else wire.ref_audio
    if len(encoded) > MAX_REFERENCE_BYTES * 4 // 3 + 4:
        raise invalid(f"`ref_audio` has more than {MAX_REFERENCE_BYTES >> 20} MB.", "ref_audio")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("`ref_audio` must be audio in base64, or a `data:` URL of it.", "ref_audio") from None


def with_reference(asked: InferenceRequest, path: str) -> InferenceRequest:
    """Return the request with a reference recording whose voice to clone."""
    assert isinstance(asked.input, SpeechInput)
    return attrs.evolve(asked, input=attrs.evolve(asked.input, reference=path))


def parse_audio_format(wire: SpeechRequest) -> AudioFormat:
    """Return the audio format of the response.

    Raises:
        ProblemError: 400 for an unknown format.
    """
    return AUDIO_FORMATS[_choice(wire.response_format, "response_format", tuple(AUDIO_FORMATS))]


def wants_events(wire: SpeechRequest) -> bool:
    """Return whether the speech is sent as server-sent events.

    Raises:
        ProblemError: 400 for an unknown stream format.
    """
    return _choice(wire.stream_format, "stream_format", STREAM_FORMATS) == "sse"


def _choice(value: str | None, field: str, choices: tuple[str, ...]) -> str:
    if value is None:
        return choices[0]
    if value not in choices:
        raise invalid(f"`{field}` must be one of {', '.join(map(repr, choices))}.", field)
    return value

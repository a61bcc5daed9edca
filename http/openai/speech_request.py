"""From the wire to the neutral request: `POST /v1/audio/speech`."""

from __future__ import annotations

import base64
import binascii
import math
import re
import tempfile
from contextlib import ExitStack

from greenroom.http.answering.request_parameters import parse_model_key
from greenroom.http.audio.audio_formats import AUDIO_FORMATS, AudioFormat
from greenroom.schemas.openai.speech import SpeechRequest
from greenroom.schemas.problems import invalid
from greenroom.schemas.requests import InferenceRequest, SpeechInput
from greenroom.schemas.settings import MEGABYTE

MAX_REFERENCE_BYTES = 10 * MEGABYTE
"""Of reference audio, decoded from base64; a minute of wav at 48 kHz in stereo has 11.5."""

STREAM_FORMATS = ("audio", "sse")

_DATA_URL = re.compile(r"data:[\w.+/;=-]{0,100};base64,")


def parse_speech_request(
    wire: SpeechRequest, request_id: str, client: str, resources: ExitStack
) -> InferenceRequest:
    """Return the request in neutral words.

    Args:
        client: See `InferenceRequest`.
        resources: Closed when the request has ended; reference audio lies in a file until then.

    Raises:
        ProblemError: 400 that names the offending field.
    """
    if wire.language is not None and wire.lang_code is not None and wire.language != wire.lang_code:
        raise invalid("`language` and `lang_code` name different languages: send one of them.", "lang_code")
    speed = 1.0 if wire.speed is None else wire.speed
    if not math.isfinite(speed):
        raise invalid("`speed` is no number.", "speed")
    speech = SpeechInput(
        wire.input,
        voice=None if wire.voice is None else wire.voice.name,
        speed=speed,
        instructions=wire.instructions or "",
        language=wire.language if wire.language is not None else wire.lang_code,
        reference=None if wire.ref_audio is None else _spool(wire.ref_audio, resources),
        reference_text=wire.ref_text,
    )
    return InferenceRequest(request_id, parse_model_key(wire.model), speech, client=client)


def parse_audio_format(wire: SpeechRequest) -> AudioFormat:
    """Return the form in which the speech is sent.

    Raises:
        ProblemError: 400 if there is no such form.
    """
    return AUDIO_FORMATS[_choice(wire.response_format, "response_format", tuple(AUDIO_FORMATS))]


def wants_events(wire: SpeechRequest) -> bool:
    """Return whether the speech is sent as events.

    Raises:
        ProblemError: 400 if it is asked for otherwise.
    """
    return _choice(wire.stream_format, "stream_format", STREAM_FORMATS) == "sse"


def _choice(value: str | None, field: str, choices: tuple[str, ...]) -> str:
    if value is None:
        return choices[0]
    if value not in choices:
        raise invalid(f"`{field}` must be one of {', '.join(map(repr, choices))}.", field)
    return value


def _spool(encoded: str, resources: ExitStack) -> str:
    """Return the path of a file that holds what is encoded, until the request ends."""
    start = _DATA_URL.match(encoded[:200])
    encoded = encoded[start.end() :] if start is not None else encoded
    if len(encoded) > MAX_REFERENCE_BYTES * 4 // 3 + 4:
        raise invalid(f"`ref_audio` has more than {MAX_REFERENCE_BYTES >> 20} MB.", "ref_audio")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("`ref_audio` must be audio in base64, or a `data:` URL of it.", "ref_audio") from None
    file = resources.enter_context(tempfile.NamedTemporaryFile(prefix="greenroom-", suffix=".audio"))  # noqa: SIM115
    file.write(data)
    file.flush()
    return file.name

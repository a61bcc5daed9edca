"""Request bodies of `POST /v1/audio/speech`: text to speech."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.schemas.openai.converter import OPENAI
from greenroom.schemas.wire import WireError, wrong_type


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

"""What clients of `POST /v1/audio/speech` send: text to be spoken."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.schemas.openai.converter import OPENAI
from greenroom.schemas.wire import WireError, wrong_type


@attrs.frozen
class Voice:
    """A voice by its name, or as an object that holds it."""

    name: str


@attrs.frozen
class SpeechRequest:
    """The body of the request; from `language` on, it is what mlx-audio's server added.

    Args:
        input: The text.
        lang_code: Another name of `language`.
        ref_audio: A recording in base64 whose voice is imitated, also as a `data:` URL.
        ref_text: What is said in it.
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

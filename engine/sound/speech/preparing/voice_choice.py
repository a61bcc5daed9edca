"""Choice of a request's voice: a name that the model knows, or None for the model's default."""

from __future__ import annotations

import re

from greenroom.engine.sound.speech.preparing.abilities import SpeechAbilities
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import invalid

log = get_logger(__name__)

DEFAULT_VOICE = "default"
"""Name that requests the model's default voice, like an absent `voice`."""

OPENAI_VOICES = frozenset(
    "alloy ash ballad cedar coral echo fable marin nova onyx sage shimmer verse".split()  # noqa: SIM905
)
"""Names that also request the default voice: official clients must send a voice, and examples use these."""

_MAX_MIXED = 4
_MAX_NAME = 64
_NAME = re.compile(r"[\w][\w \-]*")


def leaves_choice(voice: str | None, abilities: SpeechAbilities) -> bool:
    """Return whether a voice name stands for the model's default."""
    if not voice:
        return True
    name = voice.lower()
    is_anybody = name == DEFAULT_VOICE or name in OPENAI_VOICES
    return is_anybody and name not in {known.lower() for known in abilities.voices}


def choose_voice(
    model: str, abilities: SpeechAbilities, voice: str | None, *, imitates: bool, request_id: str = ""
) -> str | None:
    """Return the voice to pass to the library; None for the model's default.

    Args:
        model: The model's id, for errors.
        imitates: True if the request clones the voice of a recording.
        request_id: The request's id, for the log.

    Raises:
        ProblemError: 400: the model has no such voice.
    """
    if leaves_choice(voice, abilities):
        if abilities.listed_voices and not abilities.voices and not imitates:
            raise invalid(f"'{model}' cannot speak: {_known(abilities)}.", "voice")
        if voice and voice.lower() != DEFAULT_VOICE:
            log.info("voice left to the model", model=model, voice=voice, request_id=request_id)
        return None
    assert voice is not None
    if not abilities.takes_voice:
        detail = f"'{model}' has no voices: leave `voice` out, or send '{DEFAULT_VOICE}'."
        raise invalid(detail, "voice")
    if not abilities.listed_voices:
        return checked_name(voice, "voice")
    names = voice.split(",") if abilities.architecture == "kokoro" else [voice]
    by_lower = {name.lower(): name for name in abilities.voices}
    found = [by_lower.get(name.strip().lower()) for name in names[: _MAX_MIXED + 1]]
    if None in found or len(names) > _MAX_MIXED:
        raise invalid(f"'{model}' has no voice {voice!r:.80}; {_known(abilities)}.", "voice")
    return ",".join(filter(None, found))


def checked_name(name: str, param: str) -> str:
    """Return a name that is safe to pass to a library: never a path or an address.

    Raises:
        ProblemError: 400 that names the field.
    """
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise invalid(f"`{param}` is no valid name: use letters, digits, '-', '_' and spaces.", param)
    return name


def _known(abilities: SpeechAbilities) -> str:
    voices = abilities.voices
    if not voices:
        return "there are no files of voices in its folder"
    more = f" and {len(voices) - 60} more" if len(voices) > 60 else ""
    return f"it has {', '.join(voices[:60])}{more}"

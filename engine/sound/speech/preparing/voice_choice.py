"""Choosing the voice of a request: one of the model's, or none, which leaves it to the model."""

from __future__ import annotations

import re

from greenroom.engine.sound.speech.preparing.abilities import SpeechAbilities
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import invalid

log = get_logger(__name__)

DEFAULT_VOICE = "default"
"""Asks for the model's own choice, as leaving the voice out does."""

OPENAI_VOICES = frozenset(
    "alloy ash ballad cedar coral echo fable marin nova onyx sage shimmer verse".split()  # noqa: SIM905
)
"""Asks for it too: official clients must send a voice, and what they are copied from sends one of these."""

_MAX_MIXED = 4
_MAX_NAME = 64
_NAME = re.compile(r"[\w][\w \-]*")


def leaves_choice(voice: str | None, abilities: SpeechAbilities) -> bool:
    """Return whether a voice is one that the model may choose for itself."""
    if not voice:
        return True
    name = voice.lower()
    is_anybody = name == DEFAULT_VOICE or name in OPENAI_VOICES
    return is_anybody and name not in {known.lower() for known in abilities.voices}


def choose_voice(
    model: str, abilities: SpeechAbilities, voice: str | None, *, imitates: bool, request_id: str = ""
) -> str | None:
    """Return the voice that the library is told; None leaves it to the model.

    Args:
        model: Its id, for errors.
        imitates: The voice is that of a recording.
        request_id: For the log.

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
    """Return a name that a library gets as it is: never a path or an address.

    Raises:
        ProblemError: 400 that names the field.
    """
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise invalid(f"`{param}` is no name: letters, digits, '-', '_' and spaces.", param)
    return name


def _known(abilities: SpeechAbilities) -> str:
    voices = abilities.voices
    if not voices:
        return "there are no files of voices in its folder"
    more = f" and {len(voices) - 60} more" if len(voices) > 60 else ""
    return f"it has {', '.join(voices[:60])}{more}"

"""What a model that speaks can be told, found without its weights."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.catalog.files.voices import list_voices
from greenroom.engine.sound.speech.preparing.architectures import import_architecture
from greenroom.engine.sound.speech.preparing.weight_names import weight_names

_OWN_SPEED = frozenset({"kokoro", "kitten_tts"})
"""Architectures that speak faster by themselves; others take the argument and ignore or refuse it."""

_FILE_VOICES = frozenset({"kokoro", "pocket_tts"})
"""Architectures that would look for an unknown voice in the hub, or open it as a file."""

_FIXED_VOICE = frozenset({"outetts"})
"""Architectures that open a voice's name as a file, and would fetch a Whisper to imitate a recording."""

_INSTRUCTIONS = ("instruct", "instructions", "instruction")
_LANGUAGES = ("lang_code", "language", "lang")


@attrs.frozen
class SpeechAbilities:
    """What one model can be told.

    Args:
        architecture: The library's name of it.
        voices: Those that it has files of.
        listed_voices: It has no others than these.
        takes_voice: It has voices at all.
        own_speed: It speaks faster or slower by itself.
        instructions: The argument that tells it how to speak; None if there is none.
        language: The argument that tells the text's language, likewise.
        clones: It imitates the voice of a recording.
        reads_reference: It wants to know what is said in that.
        streams: It hands out speech before a piece of text is complete.
    """

    architecture: str
    voices: tuple[str, ...]
    listed_voices: bool
    takes_voice: bool
    own_speed: bool
    instructions: str | None
    language: str | None
    clones: bool
    reads_reference: bool
    streams: bool


def find_abilities(folder: Path, architecture: str) -> SpeechAbilities:
    """Return what a model can be told, by its library's code and its files.

    Args:
        architecture: `model_type` of config.json.

    Raises:
        ProblemError: 501: a library is missing; 503: the architecture is not known.
    """
    name, module = import_architecture(architecture, folder.name)
    arguments = inspect.signature(module.Model.generate).parameters
    voices = list_voices(folder)
    return SpeechAbilities(
        name,
        voices,
        listed_voices=bool(voices) or name in _FILE_VOICES,
        takes_voice="voice" in arguments and name not in _FIXED_VOICE,
        own_speed=name in _OWN_SPEED,
        instructions=_first(arguments, _INSTRUCTIONS),
        language=_first(arguments, _LANGUAGES),
        clones="ref_audio" in arguments and name not in _FIXED_VOICE and _has_encoder(folder, name),
        reads_reference="ref_text" in arguments,
        streams={"stream", "streaming_interval"} <= set(arguments),
    )


def _first(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in arguments), None)


def _has_encoder(folder: Path, architecture: str) -> bool:
    """Return whether the files hold what reads a voice: Pocket TTS is published without it, too."""
    if architecture != "pocket_tts":
        return True
    return any(name.startswith("mimi.encoder.") for name in weight_names(folder))

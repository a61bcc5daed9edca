"""The options that a speech model supports, found without its weights."""

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
"""Architectures that implement `speed`; others ignore the argument or reject it."""

_FILE_VOICES = frozenset({"kokoro", "pocket_tts"})
"""Architectures that would look up an unknown voice on the hub, or open its name as a file."""

_FIXED_VOICE = frozenset({"outetts"})
"""Architectures that open a voice's name as a file, and download a Whisper model to clone a voice."""

_INSTRUCTIONS = ("instruct", "instructions", "instruction")
_LANGUAGES = ("lang_code", "language", "lang")


@attrs.frozen
class SpeechAbilities:
    """The options that one model supports.

    Args:
        architecture: The library's name of the architecture.
        voices: Names of the voices in the model's folder.
        listed_voices: True if there are no other voices than these.
        takes_voice: True if the model takes a voice at all.
        own_speed: True if the model implements the speed itself.
        instructions: Name of the argument for speaking instructions; None if there is none.
        language: Name of the argument for the text's language; None if there is none.
        clones: True if the model can clone the voice of a recording.
        reads_reference: True if cloning uses the recording's transcript.
        streams: True if the model yields audio before a piece of text is complete.
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
    """Return the options that a model supports, from its library's code and its files.

    Args:
        architecture: `model_type` of config.json.

    Raises:
        ProblemError: 501: a library is missing; 503: the architecture is not supported.
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
    """Return whether the files hold the voice encoder: some releases of Pocket TTS lack it."""
    if architecture != "pocket_tts":
        return True
    return any(name.startswith("mimi.encoder.") for name in weight_names(folder))

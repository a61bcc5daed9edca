"""The options that a speech model supports, found without its weights."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from greenroom.engine.catalog.load_failures import library_missing, missing_module
from greenroom.engine.catalog.model_files import check_folder, list_voices, read_optional
from greenroom.engine.loading.libraries import import_model_code
from greenroom.engine.loading.weight_files import check_sizes, read_header
from greenroom.schemas.problems import ProblemError, invalid, load_failed

_OWN_SPEED = frozenset({"kokoro", "kitten_tts"})
"""Architectures that implement `speed`; others ignore the argument or reject it."""

_FILE_VOICES = frozenset({"kokoro", "pocket_tts"})
"""Architectures that would look up an unknown voice on the hub, or open its name as a file."""

_FIXED_VOICE = frozenset({"outetts"})
"""Architectures that open a voice's name as a file, and download a Whisper model to clone a voice."""

_INSTRUCTIONS = ("instruct", "instructions", "instruction")
_LANGUAGE_PARAMETERS = ("lang_code", "language", "lang")


@attrs.frozen
class SpeechAbilities:
    """The options that one model supports.

    Args:
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
        ProblemError (501): a library is missing; 503: the architecture is not supported.
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
        language=_first(arguments, _LANGUAGE_PARAMETERS),
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


_LIBRARY = "mlx_audio"

_PACKAGES: Mapping[str, tuple[str, str]] = {
    "kitten_tts": ("phonemizer", "pip install phonemizer-fork"),
    "melotts": ("g2p_en", "pip install g2p_en"),
    "voxtral_tts": ("mistral_common", 'pip install "mistral-common[audio]"'),
}
"""Modules that the library imports only with the first text, with the command that installs them."""


def library_name(architecture: str) -> str:
    remapping: dict[str, str] = import_model_code("mlx_audio.tts.utils").MODEL_REMAPPING
    return remapping.get(architecture, architecture.replace("-", "_"))


def import_architecture(architecture: str, model: str) -> tuple[str, ModuleType]:
    """Return mlx-audio's name of an architecture and its module. Raises ProblemError: 501: a required library
    is missing; 503: the architecture is not supported.
    """
    try:
        name = library_name(architecture)
        module = import_model_code(f"{_LIBRARY}.tts.models.{name}")
    except ImportError as error:
        if absent := missing_module(error):
            raise ProblemError(library_missing(model, absent)) from error
        detail = f"its architecture '{architecture}' is not known to the installed mlx-audio."
        raise ProblemError(load_failed(model, detail)) from error
    if name in _PACKAGES and importlib.util.find_spec(_PACKAGES[name][0]) is None:
        raise ProblemError(library_missing(model, *_PACKAGES[name]))
    return name, module


_ENGLISH = ("misaki", "num2words", "spacy", "en_core_web_sm", "phonemizer", "espeakng_loader")
# Not misaki's extra for English, which brings PyTorch: 5.8 GB on Linux.
_ESPEAK = (("misaki", "phonemizer", "espeakng_loader"), "misaki phonemizer-fork espeakng-loader")
_FAVORITE = "af_heart"
_SPACY_MODEL = "en_core_web_sm"


@attrs.frozen
class _Language:
    """The phonemizer of one language. `packages`: what pip installs for it."""

    modules: tuple[str, ...]
    packages: str = '"misaki[en]"'


_LANGUAGES: Mapping[str, _Language] = {
    "a": _Language(_ENGLISH),
    "b": _Language(_ENGLISH),
    "e": _Language(*_ESPEAK),
    "f": _Language(*_ESPEAK),
    "h": _Language(*_ESPEAK),
    "i": _Language(*_ESPEAK),
    "p": _Language(*_ESPEAK),
    "j": _Language(("misaki", "pyopenjtalk"), '"misaki[ja]"'),
    "z": _Language(("misaki", "jieba", "pypinyin", "cn2an"), '"misaki[zh]"'),
}
"""Languages by the library's code, which is also the first letter of a voice's name."""

_CODES: Mapping[str, str] = {
    "en": "a",
    "en-us": "a",
    "en-gb": "b",
    "es": "e",
    "fr": "f",
    "hi": "h",
    "it": "i",
    "pt": "p",
    "ja": "j",
    "zh": "z",
}
"""The library's codes by ISO 639-1 code, with or without a region."""


def kokoro_language(model: str, language: str | None, voice: str) -> str:
    """Return the library's language code: the client's, or else that of the voice.

    Args:
        language: ISO 639-1 code, or the library's own letter.

    Raises:
        ProblemError: 400 if the model does not speak the language; 501 if a library for it is missing.
    """
    code = voice[:1] if voice[:1] in _LANGUAGES else "a"
    if language is not None:
        asked = language.lower().replace("_", "-")
        known = _CODES.get(asked) or _CODES.get(asked.partition("-")[0])
        code = asked if asked in _LANGUAGES else known or ""
        if not code:
            detail = f"'{model}' does not speak {language!r:.40}; it speaks {', '.join(_CODES)}."
            raise invalid(detail, "language")
        if known == code == "a" and asked == "en" and voice.startswith("b"):
            code = "b"
    _check_libraries(model, _LANGUAGES[code])
    return code


def _check_libraries(model: str, language: _Language) -> None:
    absent = next((name for name in language.modules if importlib.util.find_spec(name) is None), None)
    if absent is None:
        return
    install = f"pip install {language.packages}"
    if _SPACY_MODEL in language.modules:
        install += f" && python -m spacy download {_SPACY_MODEL}"
    raise ProblemError(library_missing(model, absent, f"{install} (Python 3.12 or older)"))


def kokoro_voice(language: str, voices: tuple[str, ...]) -> str:
    """Return the default voice for a language: one that speaks it, if there is one. `voices`: names of the
    model's voices; not empty.
    """
    if language == "a" and _FAVORITE in voices:
        return _FAVORITE
    return next((voice for voice in voices if voice.startswith(language)), voices[0])


def check_speech_weights(folder: Path) -> None:
    """Check that the weight files are complete: a truncated one can crash the process. Raises ValueError: one
    sentence that names the file and the fault.
    """
    check_folder(folder)
    files = sorted(folder.glob("*.safetensors"))
    if not files and not any(folder.glob("*.npz")):
        raise ValueError("there are no weights (*.safetensors) in its folder")
    check_sizes(read_optional(folder / "config.json"), [read_header(file) for file in files])


def weight_names(folder: Path) -> Iterator[str]:
    """Yield the names of the weights; reads only the files' headers.

    Raises:
        ValueError: A file is incomplete.
    """
    for file in sorted(folder.glob("*.safetensors")):
        yield from read_header(file)

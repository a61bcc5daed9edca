"""Kokoro's languages, each of which needs libraries that convert text to phonemes."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import attrs

from greenroom.engine.catalog.files.missing_packages import library_missing
from greenroom.schemas.problems import ProblemError, invalid

_ENGLISH = ("misaki", "num2words", "spacy", "en_core_web_sm", "phonemizer", "espeakng_loader")
_ESPEAK = ("misaki", "phonemizer", "espeakng_loader")
_FAVORITE = "af_heart"
_SPACY_MODEL = "en_core_web_sm"


@attrs.frozen
class _Language:
    """The phonemizer of one language.

    Args:
        modules: Required Python modules.
        extra: The extra of `misaki` that installs them.
    """

    modules: tuple[str, ...]
    extra: str = "en"


_LANGUAGES: Mapping[str, _Language] = {
    "a": _Language(_ENGLISH),
    "b": _Language(_ENGLISH),
    "e": _Language(_ESPEAK),
    "f": _Language(_ESPEAK),
    "h": _Language(_ESPEAK),
    "i": _Language(_ESPEAK),
    "p": _Language(_ESPEAK),
    "j": _Language(("misaki", "pyopenjtalk"), "ja"),
    "z": _Language(("misaki", "jieba", "pypinyin", "cn2an"), "zh"),
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
        model: The model's name, for errors.
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
    install = f'pip install "misaki[{language.extra}]" (Python 3.12 or older)'
    if _SPACY_MODEL in language.modules:
        install += f" && python -m spacy download {_SPACY_MODEL}"
    raise ProblemError(library_missing(model, absent, install))


def kokoro_voice(language: str, voices: tuple[str, ...]) -> str:
    """Return the default voice for a language: one that speaks it, if there is one.

    Args:
        language: The library's code.
        voices: Names of the model's voices; not empty.
    """
    if language == "a" and _FAVORITE in voices:
        return _FAVORITE
    return next((voice for voice in voices if voice.startswith(language)), voices[0])

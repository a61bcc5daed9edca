"""The languages of Kokoro, each of which needs a library that turns its text into sounds."""

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
    """What turns text of one language into sounds.

    Args:
        modules: That have to be there.
        extra: Of `misaki`, which brings them.
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
"""By the library's code, which a voice's name begins with."""

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
"""ISO 639-1, with a region or without."""


def kokoro_language(model: str, language: str | None, voice: str) -> str:
    """Return the library's code of a text's language: the client's, else that of the voice.

    Args:
        model: For errors.
        language: ISO 639-1, or the library's own letter.

    Raises:
        ProblemError: 400 if the model does not speak it; 501 if a library for it is missing.
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
    """Return the voice of a request that names none: one that speaks the language, if there is one.

    Args:
        language: The library's code.
        voices: Not empty.
    """
    if language == "a" and _FAVORITE in voices:
        return _FAVORITE
    return next((voice for voice in voices if voice.startswith(language)), voices[0])

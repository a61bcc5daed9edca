"""The spoken language, passed to each architecture in its own form."""

from __future__ import annotations

import re

import pytest

from greenroom.engine.catalog.libraries import library_folder, models_of
from greenroom.engine.sound.transcription.recognizers import spoken_language
from greenroom.engine.sound.transcription.transcription_adapter import NOT_SERVED, SINGLE_PASS

BUILT_ON = {"mega_asr": "qwen3_asr"}
"""Architectures that pass their arguments on to another one."""


def source_of(architecture: str) -> str:
    """Return the source code of an architecture."""
    root = library_folder("mlx_audio")
    assert root is not None
    folder = root / "stt" / "models" / BUILT_ON.get(architecture, architecture)
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))


@pytest.mark.parametrize(
    ("architecture", "asked", "told"),
    [
        ("qwen3_asr", "fr", "French"),
        ("mega_asr", "french", "French"),
        ("canary", "german", "de"),
        ("granite_speech", "pt-br", "pt"),
        ("sensevoice", "cantonese", "yue"),
        ("voxtral", "hi", "hi"),
        ("voxtral", None, None),
        ("cohere_asr", "tlh", "tlh"),
    ],
)
def test_a_language_is_told_as_its_code_or_its_name(architecture: str, asked: str | None, told: str) -> None:
    assert spoken_language(asked, SINGLE_PASS[architecture]) == told


@pytest.mark.parametrize("architecture", sorted(SINGLE_PASS))
def test_the_librarys_code_takes_what_it_is_told(architecture: str) -> None:
    traits, source = SINGLE_PASS[architecture], source_of(architecture)
    wanted = {*traits.language, *(["max_tokens"] if traits.bounded else [])}
    assert {name for name in wanted if not re.search(rf"^        {name}\b.*=", source, re.MULTILINE)} == set()


def test_granite_is_never_asked_to_translate() -> None:
    """Its argument `language` is the target language of a translation."""
    assert "Translate the speech to" in source_of("granite_speech")
    assert SINGLE_PASS["granite_speech"].language == ("source_language",)


def test_every_architecture_is_served_or_refused_with_a_reason() -> None:
    known = {"whisper", *SINGLE_PASS, *NOT_SERVED}
    assert models_of("mlx_audio", "stt/models") <= known
    assert not SINGLE_PASS.keys() & NOT_SERVED.keys()

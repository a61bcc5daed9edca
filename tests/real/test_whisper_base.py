"""Whisper base over HTTP: another language, and its translation (`make real ALL=1`)."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest

from greenroom.tests.real.test_whisper import words

NEEDS = ("whisper-base",)
GERMAN = Path(__file__).with_name("german.opus")
"""Spoken by eSpeak NG, and not clearly: Guten Tag. Die Bibliothek öffnet morgens um neun Uhr … am Sonntag
bleibt sie geschlossen."""


def test_german_is_heard_and_known_as_german(client: openai.OpenAI) -> None:
    with GERMAN.open("rb") as file:
        heard = client.audio.transcriptions.create(
            model="whisper-base", file=file, response_format="verbose_json"
        )
    assert heard.language in ("german", "de")
    assert {"guten", "tag", "die", "bleibt", "sie", "geschlossen"} <= set(words(heard.text))


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # by the client
def test_german_is_translated_into_english(client: openai.OpenAI) -> None:
    with GERMAN.open("rb") as file:
        translated = client.audio.translations.create(model="whisper-base", file=file)
    assert "closed" in words(translated.text)

"""Kokoro 82M over HTTP: what it says is what Whisper hears (`make real ALL=1`)."""

from __future__ import annotations

import openai

from greenroom.tests.real.conftest import Record
from greenroom.tests.real.packages import PHONEMIZER
from greenroom.tests.real.test_whisper import edits, words

NEEDS = ("kokoro", "whisper-base", PHONEMIZER)
TEXT = "Buenas tardes, señora."
"""Spanish, since English needs a spaCy model that no registry has under its name; short, since a CPU takes a
minute for a second of it.
"""


def test_what_is_spoken_is_heard(client: openai.OpenAI, record_property: Record) -> None:
    spoken = client.audio.speech.create(model="kokoro", voice="ef_dora", input=TEXT, response_format="wav")
    heard = client.audio.transcriptions.create(
        model="whisper-base", file=("spoken.wav", spoken.content), language="es"
    )
    record_property("heard", heard.text.strip())
    assert edits(words(TEXT), words(heard.text)) <= 1

"""Whisper tiny.en over HTTP: recordings of speech against their transcripts, and what holds no speech."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from greenroom.tests.real.conftest import HOME, Record
from greenroom.tests.real.recordings import FOLDER, SENTENCES, read_sound
from greenroom.tests.support.media.recordings import RATE, Sound, noise, silence, write_recording

NEEDS = ("whisper-tiny.en", FOLDER)
PLACES = (2.0, 95.0, 215.0, 338.0, 571.0)
"""Seconds at which the sentences begin in a recording of ten minutes."""


def words(text: str) -> list[str]:
    """Return the words of a text, without what writers do differently."""
    plain = text.lower().replace("mister", "mr").replace("'", "")
    return re.sub(r"[^a-z]", " ", plain).split()


def edits(expected: list[str], heard: list[str]) -> int:
    """Return the number of words that were changed, left out or added."""
    row = list(range(len(heard) + 1))
    for count, word in enumerate(expected, 1):
        corner, row[0] = row[0], count
        for place, other in enumerate(heard, 1):
            corner, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, corner + (word != other)),
            )
    return row[-1]


def transcribe(client: openai.OpenAI, sound: Sound, path: Path, **fields: Any) -> Any:
    """Return the transcript of a sound, with segments."""
    asked = {"model": "whisper-tiny.en", "response_format": "verbose_json", **fields}
    with write_recording(path, sound).open("rb") as file:
        return client.audio.transcriptions.create(file=file, **asked)


def sentence(name: str) -> Sound:
    """Return a recorded sentence."""
    return read_sound(HOME / FOLDER / f"{name}.wav")


@pytest.mark.parametrize("name", ["0870", "0920"])
def test_words_of_a_sentence(
    name: str, client: openai.OpenAI, tmp_path: Path, record_property: Record
) -> None:
    heard = transcribe(client, sentence(name), tmp_path / "sentence.wav")
    record_property("edits", wrong := edits(words(SENTENCES[name]), words(heard.text)))
    assert wrong <= 1


def test_a_recording_that_repeats_itself_is_heard_whole(
    client: openai.OpenAI, tmp_path: Path, record_property: Record
) -> None:
    passage = np.concatenate([sentence(name) for name in SENTENCES])
    heard = transcribe(client, np.tile(passage, 3), tmp_path / "loop.wav")
    expected = words(" ".join(SENTENCES.values()) + " ") * 3
    record_property("edits", wrong := edits(expected, words(heard.text)))
    record_property("of words", len(expected))
    assert wrong <= len(expected) // 20


def test_sentences_in_ten_minutes_are_heard_where_they_are(
    client: openai.OpenAI, tmp_path: Path, record_property: Record
) -> None:
    whole = noise(600.0, level=0.0001)
    for place, name in zip(PLACES, SENTENCES, strict=True):
        spoken = sentence(name)
        start = round(place * RATE)
        whole[start : start + len(spoken)] += spoken
    heard = transcribe(client, whole, tmp_path / "minutes.wav")
    record_property("edits", wrong := edits(words(" ".join(SENTENCES.values())), words(heard.text)))
    assert wrong <= 6
    for place, name in zip(PLACES, SENTENCES, strict=True):
        end = place + len(sentence(name)) / RATE
        inside = [
            segment.text for segment in heard.segments if place - 3 < segment.start and segment.end < end + 3
        ]
        assert edits(words(SENTENCES[name]), words(" ".join(inside))) <= 2
    times = [time for segment in heard.segments for time in (segment.start, segment.end)]
    assert times == sorted(times)


@pytest.mark.parametrize("sound", [silence(30.0), noise(10.0)], ids=["silence", "noise"])
def test_nothing_is_heard_where_nobody_speaks(sound: Sound, client: openai.OpenAI, tmp_path: Path) -> None:
    heard = transcribe(client, sound, tmp_path / "nobody.wav")
    assert heard.text == ""

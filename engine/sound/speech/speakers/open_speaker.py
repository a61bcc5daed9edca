"""The choice of a speaker class by architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from greenroom.engine.sound.speech.preparing.abilities import SpeechAbilities
from greenroom.engine.sound.speech.speakers.any_speaker import AnySpeaker
from greenroom.engine.sound.speech.speakers.kokoro_speaker import KokoroSpeaker
from greenroom.engine.sound.speech.speakers.pocket_speaker import PocketSpeaker
from greenroom.engine.sound.speech.speakers.speaker import Speaker


def open_speaker(model: Any, folder: Path, abilities: SpeechAbilities) -> Speaker:
    """Return the speaker of a loaded model."""
    match abilities.architecture:
        case "pocket_tts":
            return PocketSpeaker(model)
        case "kokoro":
            return KokoroSpeaker(model, folder)
        case _:
            return AnySpeaker(model, abilities)

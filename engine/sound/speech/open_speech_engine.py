"""Opening a speech model: its adapter, which needs no weights, and its engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.catalog.files.load_failures import named_failures
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.load_errors import named_load_errors
from greenroom.engine.loading.offline import offline
from greenroom.engine.loading.read_weights import read_weights, weight_bytes
from greenroom.engine.loading.recorded_files import recorded_files
from greenroom.engine.memory.model_load import ModelLoad
from greenroom.engine.sound.speech.codecs import codec_bytes, forget_codecs
from greenroom.engine.sound.speech.load_speaking_model import load_speaking_model
from greenroom.engine.sound.speech.preparing.abilities import SpeechAbilities, find_abilities
from greenroom.engine.sound.speech.preparing.speech_adapter import SpeechAdapter
from greenroom.engine.sound.speech.preparing.weight_names import check_speech_weights
from greenroom.engine.sound.speech.speakers.any_speaker import AnySpeaker
from greenroom.engine.sound.speech.speakers.kokoro_speaker import KokoroSpeaker
from greenroom.engine.sound.speech.speakers.pocket_speaker import PocketSpeaker
from greenroom.engine.sound.speech.speakers.speaker import Speaker
from greenroom.engine.sound.speech.speech_engine import SpeechEngine
from greenroom.schemas.models.capabilities import CapabilityRecord

_LEAST_TRANSIENT = 32 << 20
_MOST_TRANSIENT = 1 << 30
"""Limit, in bytes, on the estimate of one piece's memory besides the weights.

Below it, the estimate is the size of the weights (measured: Kokoro 1.5 times, Pocket TTS 0.2 times it).
"""


def open_speech_adapter(folder: Path, record: CapabilityRecord, model: str) -> SpeechAdapter:
    """Return the adapter that prepares a model's requests.

    Args:
        model: The model's id, for errors.

    Raises:
        ProblemError: 501: a library is missing; 503: the architecture is not supported.
    """
    with named_failures(folder, model), offline():
        return SpeechAdapter(model, find_abilities(folder, record.architecture))


def open_speech_engine(load: ModelLoad) -> SpeechEngine:
    """Load a model's weights and its engine, confined to this thread.

    Raises:
        ProblemError: 501, 503 `load_failed`; 507: there is not enough memory for the weights.
        LoadAbandonedError: The load was abandoned.
    """
    use_device(load.settings)
    with load.open_share() as (share, charge):
        with named_load_errors(load.folder), offline():
            abilities = find_abilities(load.folder, load.record.architecture)
            model = _load_model(load, abilities, charge)
            speaker = open_speaker(model, load.folder, abilities)
        transient = min(max(share.weights, _LEAST_TRANSIENT), _MOST_TRANSIENT)
        return SpeechEngine(
            speaker, load.folder, share, transient, load.clock, partial(forget_codecs, type(model))
        )


def _load_model(load: ModelLoad, abilities: SpeechAbilities, charge: Callable[[int], None]) -> Any:
    check_speech_weights(load.folder)
    with recorded_files(load.is_abandoned) as files:
        model = load_speaking_model(load.folder, abilities.architecture)
    mx.eval(mx.random.state)  # Otherwise its graph keeps the layers' initial random weights alive.
    charge(weight_bytes(model) + codec_bytes(model, abilities.architecture))
    read_weights(model, files, load.progress, load.is_abandoned)
    return model


def open_speaker(model: Any, folder: Path, abilities: SpeechAbilities) -> Speaker:
    """Return the speaker of a loaded model."""
    match abilities.architecture:
        case "pocket_tts":
            return PocketSpeaker(model)
        case "kokoro":
            return KokoroSpeaker(model, folder)
        case _:
            return AnySpeaker(model, abilities)

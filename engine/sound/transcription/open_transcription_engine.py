"""Opening a transcription model: its weights within the available memory, and its engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.libraries import import_model_code
from greenroom.engine.loading.load_errors import named_load_errors
from greenroom.engine.loading.offline import offline
from greenroom.engine.loading.read_weights import cast_weights, read_weights, weight_bytes
from greenroom.engine.loading.recorded_files import recorded_files
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.engine.memory.model_load import ModelLoad
from greenroom.engine.sound.speech.preparing.weight_names import check_speech_weights
from greenroom.engine.sound.transcription.preparing.architectures import library_name
from greenroom.engine.sound.transcription.recognizers.recognizer import Recognizer
from greenroom.engine.sound.transcription.recognizers.single_pass_recognizer import SinglePassRecognizer
from greenroom.engine.sound.transcription.transcription_engine import TranscriptionEngine
from greenroom.engine.sound.transcription.whisper.whisper_recognizer import WhisperRecognizer
from greenroom.schemas.settings.settings import Settings

_LONGEST_CONTEXT = 4_096
"""Limit on Whisper's positions; all published models have 1,500 of audio and 448 of text."""
_CONTEXTS = ("n_audio_ctx", "n_text_ctx", "max_source_positions", "max_target_positions")


def open_transcription_engine(load: ModelLoad) -> TranscriptionEngine:
    """Load a model's weights and its engine, confined to this thread.

    Raises:
        ProblemError: 503 `load_failed`; 507: there is not enough memory for the weights.
        LoadAbandonedError: The load was abandoned.
    """
    with load.open_share() as (share, charge):
        use_device(load.settings)
        architecture = load.record.architecture
        with named_load_errors(load.folder):
            with recorded_files(load.is_abandoned) as files:
                model = _load_lazily(load.folder, architecture)
                if architecture == "whisper":
                    _cast(model, load.settings)
            charge(weight_bytes(model))
            read_weights(model, files, load.progress, load.is_abandoned)
            return TranscriptionEngine(_recognizer(model, architecture), share, load.clock)


def _load_lazily(folder: Path, architecture: str) -> Any:
    """Return mlx-audio's model with weights that are not evaluated yet.

    By itself, the library would guess an architecture from the folder's path, and download missing files: so
    the architecture is given, and downloads are disabled.
    """
    if any(folder.glob("model*.safetensors")):
        check_weight_files(folder)
    else:  # Mistral's own releases are named `consolidated.safetensors`.
        check_speech_weights(folder)
    if architecture == "whisper":
        _check_context(folder)
    load_model = import_model_code("mlx_audio.stt.utils").load_model
    with offline():
        model = load_model(folder, lazy=True, model_type=architecture, model_name_parts=[architecture])
    # Otherwise its graph keeps the layers' initial random weights alive.
    mx.eval(mx.random.state)
    return model


def _cast(model: Any, settings: Settings) -> None:
    """Give a Whisper model the type of the settings, instead of float16."""
    if (dtype := cast_weights(model, settings, slow=True)) is None:
        return
    model.dtype = dtype
    encoder, decoder = model.encoder, model.decoder
    encoder._positional_embedding = encoder._positional_embedding.astype(dtype)
    decoder._mask = decoder._mask.astype(dtype)


def _check_context(folder: Path) -> None:
    """Check Whisper's stated positions: building it computes a mask of their square.

    Raises:
        ValueError: One sentence with the field and its limit.
    """
    config = read_optional(folder / "config.json")
    for field in _CONTEXTS:
        value = config.get(field)
        if isinstance(value, int) and value > _LONGEST_CONTEXT:
            raise ValueError(f"its config.json states {field} = {value:,} (at most {_LONGEST_CONTEXT:,})")


def _recognizer(model: Any, architecture: str) -> Recognizer:
    if architecture == "whisper":
        return WhisperRecognizer(model)
    return SinglePassRecognizer(model, library_name(architecture))

"""Opening a model that transcribes: its weights within the memory there is, and what computes with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.libraries import import_model_code
from greenroom.engine.loading.load_errors import named_load_errors
from greenroom.engine.loading.offline import offline
from greenroom.engine.loading.read_weights import read_weights, weight_bytes
from greenroom.engine.loading.weight_files import check_weight_files
from greenroom.engine.memory.account import MemoryAccount
from greenroom.engine.memory.weights import charge_weights
from greenroom.engine.transcription.recognizers.one_piece_recognizer import OnePieceRecognizer
from greenroom.engine.transcription.recognizers.recognizer import Recognizer
from greenroom.engine.transcription.transcription_engine import TranscriptionEngine
from greenroom.engine.transcription.whisper.whisper_recognizer import WhisperRecognizer
from greenroom.schemas.capabilities import CapabilityRecord
from greenroom.schemas.settings import Settings


def open_transcription_engine(
    folder: Path,
    record: CapabilityRecord,
    settings: Settings,
    progress: Callable[[float], None],
    is_abandoned: Callable[[], bool],
    account: MemoryAccount | None = None,
) -> TranscriptionEngine:
    """Load a model's weights and what hears with them, all confined to this thread.

    Args:
        progress: Called with the fraction of the weights that are in memory, 0 to 1.
        is_abandoned: Called between chunks of the weights; returns whether to stop.
        account: Of memory, shared by all models of the process; None is one of its own.

    Raises:
        ProblemError: 503 `load_failed`; 507: there is not enough memory for the weights.
        LoadAbandonedError: `is_abandoned` returned True.
    """
    account = account or MemoryAccount(settings.memory_bytes, settings.kv_cache_bytes)
    share = account.open_share()
    try:
        use_device(settings)
        with named_load_errors(folder):
            model = _load_lazily(folder, record.architecture)
            charge_weights(account, share, folder.name, weight_bytes(model))
            read_weights(model, progress, is_abandoned)
            return TranscriptionEngine(_recognizer(model, record.architecture), share)
    except BaseException:
        share.close()
        raise


def _load_lazily(folder: Path, architecture: str) -> Any:
    """Return mlx-audio's model with weights that are named, but not read yet.

    The library would also take an architecture from the parts of the folder's path, and fetches what is
    not there: it is told both.
    """
    check_weight_files(folder)
    load_model = import_model_code("mlx_audio.stt.utils").load_model
    with offline():
        model = load_model(folder, lazy=True, model_type=architecture, model_name_parts=[architecture])
    # Every layer was given random weights first, which are never read.
    mx.eval(mx.random.state)
    return model


def _recognizer(model: Any, architecture: str) -> Recognizer:
    return WhisperRecognizer(model) if architecture == "whisper" else OnePieceRecognizer(model)

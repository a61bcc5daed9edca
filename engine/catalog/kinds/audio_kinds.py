"""Detection of speech and transcription models, by mlx-audio's folders and tables."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from greenroom.engine.catalog.kinds.libraries import library_constant, library_folder, models_of
from greenroom.schemas.models.capabilities import ModelType

_KINDS: Mapping[str, ModelType] = {"tts": "speech", "stt": "transcription"}

_NOT_SERVED: Mapping[str, str] = {
    "sts": "it turns speech into speech",
    "vad": "it detects who speaks, and when",
    "lid": "it tells spoken languages apart",
    "music": "it makes music",
    "codec": "it is a codec of audio",
}
"""Purposes of the models in mlx-audio's other folders."""

_BACKBONES = frozenset({"llama", "qwen3"})
"""Folders of mlx-audio named after language models; such a name does not identify an audio model
(`spoken_backbones.py` tells which of them speak)."""

_SIGNS: Mapping[str, frozenset[str]] = {
    "tada": frozenset({"acoustic_dim"}),
    "mimo_audio": frozenset({"speech_vocab_size", "local_layers", "audio_channels"}),
}
"""Fields that identify audio models whose `model_type` is that of a language model."""

_NAMELESS: Mapping[str, frozenset[str]] = {
    "pocket_tts": frozenset({"flow_lm", "mimi"}),
    "kokoro": frozenset({"istftnet", "plbert"}),
    "whisper": frozenset({"n_mels", "n_audio_ctx", "n_text_ctx"}),
}
"""Fields that identify models without a `model_type`."""


def name_by_fields(config: Mapping[str, Any]) -> str | None:
    """Return the architecture identified by a configuration's fields, if its name does not identify it."""
    if "model_type" not in config:
        named = config.get("architecture")
        found = next((name for name, fields in _NAMELESS.items() if fields <= config.keys()), None)
        found = found or _nemo_name(config)
        return found or (named if isinstance(named, str) else None)
    if config["model_type"] in ("llama", "qwen2", "mimo_audio"):
        return next((name for name, fields in _SIGNS.items() if fields <= config.keys()), None)
    return None


def audio_kind(architecture: str, config: Mapping[str, Any]) -> ModelType | None:
    """Return the model type of a served mlx-audio model; None for other models."""
    kinds = [kind for folder, kind in _KINDS.items() if architecture in _names_of(folder)]
    if len(kinds) > 1:
        classes = " ".join(map(str, config.get("architectures") or ()))
        return "transcription" if "ASR" in classes else "speech"
    return kinds[0] if kinds else None


def why_audio_is_not_served(architecture: str) -> str | None:
    """Return the purpose of an mlx-audio model whose type is not served; None for other models."""
    root = library_folder("mlx_audio")
    if root is None:
        return None
    for folder, why in _NOT_SERVED.items():
        if architecture in _names_of(folder) or (root / folder / "models" / architecture).is_dir():
            return why
    return None


@functools.cache
def _names_of(kind: str) -> frozenset[str]:
    remapping: Mapping[str, str] = library_constant("mlx_audio", f"{kind}/utils.py", "MODEL_REMAPPING")
    return (models_of("mlx_audio", f"{kind}/models") | frozenset(remapping)) - _BACKBONES


def _nemo_name(config: Mapping[str, Any]) -> str | None:
    """Return the architecture of a configuration in NVIDIA NeMo's format, by its target class."""
    target = str(config.get("target", ""))
    if not target.startswith("nemo.collections.asr."):
        return None
    return "canary" if "MultiTask" in target else "parakeet"

"""Which models speak and which write down what was said, as mlx-audio's folders and tables have it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from greenroom.engine.catalog.kinds.libraries import library_constant, library_folder, models_of
from greenroom.schemas.capabilities import ModelType

_KINDS: Mapping[str, ModelType] = {"tts": "speech", "stt": "transcription"}

_NOT_SERVED: Mapping[str, str] = {
    "sts": "it turns speech into speech",
    "vad": "it detects who speaks, and when",
    "lid": "it tells spoken languages apart",
    "music": "it makes music",
    "codec": "it is a codec of audio",
}
"""What models are for in mlx-audio's other folders."""

_BACKBONES = frozenset({"llama", "qwen3", "dense"})
"""Folders of mlx-audio that carry the name of a language model; such a name tells nothing of audio."""

_SIGNS: Mapping[str, frozenset[str]] = {
    "tada": frozenset({"acoustic_dim"}),
    "mimo_audio": frozenset({"speech_vocab_size", "local_layers", "audio_channels"}),
}
"""Fields by which models are known that give a language model's name as their own."""

_NAMELESS: Mapping[str, frozenset[str]] = {
    "pocket_tts": frozenset({"flow_lm", "mimi"}),
    "kokoro": frozenset({"istftnet", "plbert"}),
    "whisper": frozenset({"n_mels", "n_audio_ctx", "n_text_ctx"}),
}
"""Fields by which models are known that give no name."""


def name_by_fields(config: Mapping[str, Any]) -> str | None:
    """Return the architecture that a configuration's fields tell where its name is missing or misleads."""
    if "model_type" not in config:
        named = config.get("architecture")
        found = next((name for name, fields in _NAMELESS.items() if fields <= config.keys()), None)
        found = found or _nemo_name(config)
        return found or (named if isinstance(named, str) else None)
    if config["model_type"] in ("llama", "qwen2", "mimo_audio"):
        return next((name for name, fields in _SIGNS.items() if fields <= config.keys()), None)
    return None


def audio_kind(architecture: str, config: Mapping[str, Any]) -> ModelType | None:
    """Return the kind of a model of mlx-audio that is served; None if it is no such model."""
    kinds = [kind for folder, kind in _KINDS.items() if architecture in _names_of(folder)]
    if len(kinds) > 1:
        classes = " ".join(map(str, config.get("architectures") or ()))
        return "transcription" if "ASR" in classes else "speech"
    return kinds[0] if kinds else None


def why_audio_is_not_served(architecture: str) -> str | None:
    """Return what a model of mlx-audio is for whose kind is not served; None if it is no such model."""
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
    """Return whose configuration in NVIDIA NeMo's form it is: it names a class as its target."""
    target = str(config.get("target", ""))
    if not target.startswith("nemo.collections.asr."):
        return None
    return "canary" if "MultiTask" in target else "parakeet"

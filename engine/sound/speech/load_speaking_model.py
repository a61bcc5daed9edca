"""mlx-audio's model from a folder, with weights that are named, but not read yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from greenroom.engine.loading.libraries import import_model_code

_NAMED_TOKENIZER = frozenset({"llama", "outetts"})
"""Architectures that would fetch the tokenizer of the first model of their kind, whatever the folder has."""

_CODECS = {"outetts": "mlx-community/dac-speech-24khz-1.5kbps"}
"""Repositories that are read with each text, and not before."""


def load_speaking_model(folder: Path, architecture: str) -> Any:
    """Return the library's model. It is told the architecture: by itself it would guess from the path.

    Args:
        architecture: The library's name of it.
    """
    if (codec := _CODECS.get(architecture)) is not None:
        from huggingface_hub import snapshot_download

        snapshot_download(repo_id=codec, allow_patterns=["*.safetensors", "*.json"])
    if architecture in _NAMED_TOKENIZER:
        return _load_with_own_tokenizer(folder, architecture)
    load_lazily = import_model_code("mlx_audio.tts.utils").load_model
    return load_lazily(folder, lazy=True, model_type=architecture, model_name_parts=[])


def _load_with_own_tokenizer(folder: Path, architecture: str) -> Any:
    """Do what the library does (`base_load_model`), with a configuration that names its own tokenizer."""
    library = import_model_code("mlx_audio.utils")
    module = import_model_code(f"mlx_audio.tts.models.{architecture}")
    config = {**library.load_config(folder), "model_path": str(folder), "tokenizer_name": str(folder)}
    model = module.Model(module.ModelConfig.from_dict(config))
    weights = model.sanitize(library.load_weights(folder))
    library.apply_quantization(model, config, weights, getattr(model, "model_quant_predicate", None))
    model.load_weights(list(weights.items()), strict=True)
    model.eval()
    return model

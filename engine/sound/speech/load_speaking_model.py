"""Loading of mlx-audio's speech models from a folder, with lazy weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from greenroom.engine.loading.libraries import import_model_code
from greenroom.engine.sound.speech.codecs import download_codec

_NAMED_TOKENIZER = frozenset({"llama", "outetts"})
"""Architectures whose code downloads the tokenizer of another repository, even if the folder has one."""


def load_speaking_model(folder: Path, architecture: str) -> Any:
    """Return the library's model, with the architecture given: the library would guess it from the path.

    Args:
        architecture: The library's name of the architecture.
    """
    download_codec(architecture)
    if architecture in _NAMED_TOKENIZER:
        return _load_with_own_tokenizer(folder, architecture)
    load_lazily = import_model_code("mlx_audio.tts.utils").load_model
    return load_lazily(folder, lazy=True, model_type=architecture, model_name_parts=[])


def _load_with_own_tokenizer(folder: Path, architecture: str) -> Any:
    """Load as the library's `base_load_model` does, but with the tokenizer of the model's own folder."""
    library = import_model_code("mlx_audio.utils")
    module = import_model_code(f"mlx_audio.tts.models.{architecture}")
    config = {**library.load_config(folder), "model_path": str(folder), "tokenizer_name": str(folder)}
    model = module.Model(module.ModelConfig.from_dict(config))
    weights = model.sanitize(library.load_weights(folder))
    library.apply_quantization(model, config, weights, getattr(model, "model_quant_predicate", None))
    model.load_weights(list(weights.items()), strict=True)
    model.eval()
    return model

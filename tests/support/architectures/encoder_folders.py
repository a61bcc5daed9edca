"""Folders of tiny embedding models with random weights, for every architecture of the libraries."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenroom.tests.support.architectures.encoder_configs import (
    AS_ON_THE_HUB,
    CONFIGS,
    REFUSED_BY_NAME,
)
from greenroom.tests.support.models.tiny_encoders import make_tiny_encoder

_AS_BOTH_READ_IT: Mapping[str, Mapping[str, Any]] = {
    "modernbert": {"classifier_pooling": "cls"},
    "gemma3_text": {"rope_theta": 1e6},
}
"""Fields that make mlx-embeddings, whose field names or defaults differ, compute the same as mlx-vlm."""

_NESTED = ("text_config", "llm_config")


def make_encoder_folder(library: str, architecture: str, home: Path) -> Path:
    """Make the folder of an architecture, and return it.

    Args:
        library: Library whose code makes the weights: `mlx_vlm` or `mlx_embeddings`.

    Raises:
        Exception: Any error of the library over the configuration.
    """
    folder = home / f"{library}-{architecture}-embedding"
    if architecture in AS_ON_THE_HUB:
        kind = AS_ON_THE_HUB[architecture]
        make_tiny_encoder(kind, folder, **_AS_BOTH_READ_IT.get(kind, {}))
        if kind == "xlm-roberta":
            _add_pooler(folder)
        return folder
    tokenizer = make_tiny_encoder("qwen3", home / "tokenizer")
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)
    vocabulary = len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]) + 8
    config = _with_vocabulary(CONFIGS[architecture], vocabulary)
    (folder / "config.json").write_text(json.dumps(config))
    if architecture not in REFUSED_BY_NAME:
        _write_weights(folder, _model(library, architecture, config))
    return folder


def _add_pooler(folder: Path) -> None:
    """Add unused weights that real folders have and mlx-embeddings requires."""
    import mlx.core as mx

    weights: Any = mx.load(str(folder / "model.safetensors"))
    pooler = {"pooler.dense.weight": mx.zeros((64, 64)), "pooler.dense.bias": mx.zeros((64,))}
    mx.save_safetensors(str(folder / "model.safetensors"), weights | pooler, metadata={"format": "pt"})


def _with_vocabulary(config: Mapping[str, Any], size: int) -> dict[str, Any]:
    nested = {name: {**config[name], "vocab_size": size} for name in _NESTED if name in config}
    return {**config, "vocab_size": size, **nested}


def _model(library: str, architecture: str, config: Mapping[str, Any]) -> Any:
    """Return a library's model, made from the configuration in that library's way."""
    module = importlib.import_module(f"{library}.models.{architecture}")
    config = json.loads(json.dumps(config))
    if library == "mlx_embeddings":
        arguments = module.ModelArgs.from_dict(config)
        for half in ("text", "vision"):
            if hasattr(module, f"{half.title()}Config") and isinstance(
                getattr(arguments, f"{half}_config", None), dict
            ):
                own = getattr(module, f"{half.title()}Config")
                setattr(arguments, f"{half}_config", own(**getattr(arguments, f"{half}_config")))
        return module.Model(arguments)
    utils: Any = importlib.import_module("mlx_vlm.utils")
    arguments = module.ModelConfig.from_dict(config)
    return module.Model(utils.update_module_configs(arguments, module, config, ["text", "vision"]))


def _write_weights(folder: Path, model: Any) -> None:
    import mlx.core as mx
    from mlx.utils import tree_flatten

    mx.random.seed(0)
    weights = {}
    for name, value in tree_flatten(model.parameters()):
        # Without noise in all weights, the vectors of all texts would be alike.
        noise = (
            mx.random.normal(value.shape, scale=0.15)
            if value.ndim > 1
            else 0.1 * mx.random.normal(value.shape)
        )
        weights[name] = noise if value.ndim > 1 else value + noise
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})

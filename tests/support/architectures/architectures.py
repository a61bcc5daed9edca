"""Tiny models of every mlx-lm architecture, made in memory."""

from __future__ import annotations

import importlib
import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.tests.support.architectures.architecture_configs import OWN
from greenroom.tests.support.architectures.architecture_fields import COMMON, NO_ARCHITECTURE, NOT_MADE
from greenroom.tests.support.models.tiny_models import SPECIAL_TOKENS

_NOISE = 0.3
"""Spread of noise added to constant weights: a recurrent block of zeros would pass everything on."""

_SCALE = 3.0
"""Scale of random matrices. Unscaled ones repeat two or three tokens, which hides faults of a cache."""

SCALES = {"gemma2": (0.2, 3.0), "gemma3n": (0.2, 1.0), "mellum": (3.0, 1.0), "minimax": (3.0, 1.0)}
"""Scales of embeddings and of other matrices, for architectures that repeat tokens even at `_SCALE`."""


def names() -> list[str]:
    """Return the architectures that can be made: those that have a file in mlx-lm."""
    import_text_libraries()
    folder = Path(importlib.import_module("mlx_lm.models").__path__[0])
    stems = {path.stem for path in folder.glob("*.py")}
    return sorted(stems - NO_ARCHITECTURE - set(NOT_MADE) - {"__init__"})


def config_of(name: str, **changes: Any) -> dict[str, Any]:
    """Return the config.json of a tiny model of an architecture.

    Args:
        changes: Fields to override.
    """
    own = {**OWN.get(name, {}), **changes}
    if "text_config" in own:
        text, further = own.pop("text_config")
        inner = {**COMMON, **OWN.get(text, {}), "model_type": text, **further}
        inner.pop("text_config", None)
        own["text_config"] = inner
    return {**_known_to(name), "model_type": name, "eos_token_id": 2, **own}


def _known_to(name: str) -> dict[str, Any]:
    """Return the common fields that an architecture accepts; transformers rejects some unknown ones."""
    module = importlib.import_module(f"mlx_lm.models.{name}")
    known = inspect.signature(module.ModelArgs).parameters
    return {field: value for field, value in COMMON.items() if field in known}


def make(name: str, **changes: Any) -> Any:
    """Return a tiny model of an architecture with random weights, none of them constant."""
    import_text_libraries()
    from mlx.utils import tree_flatten, tree_unflatten
    from mlx_lm.utils import _get_classes

    config = config_of(name, **changes)
    model_class, arguments = _get_classes(config)
    mx.random.seed(0)
    model = model_class(arguments.from_dict(config))
    embedding, matrix = SCALES.get(name, (_SCALE, _SCALE))
    weights = [
        (path, _enliven(weight, embedding if path.endswith("embed_tokens.weight") else matrix))
        for path, weight in tree_flatten(model.parameters())
    ]
    model.update(tree_unflatten([(path, _without_ends(path, weight)) for path, weight in weights]))
    mx.eval(model.parameters())
    return model


def _without_ends(path: str, weight: mx.array) -> mx.array:
    """Return an output matrix that never makes special tokens the most likely: no answer ends early."""
    if not path.endswith("lm_head.weight"):
        return weight
    reserved = len(SPECIAL_TOKENS)
    return mx.concatenate([mx.zeros_like(weight[:reserved]), weight[reserved:]])


def make_folder(name: str, folder: Path, tokenizer: Path, **changes: Any) -> Path:
    """Make a folder with a tiny model of an architecture.

    Args:
        tokenizer: Folder with a tokenizer to copy.
    """
    from mlx.utils import tree_flatten

    folder.mkdir(parents=True)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / file, folder / file)
    (folder / "config.json").write_text(json.dumps(config_of(name, **changes)))
    weights = dict(tree_flatten(make(name, **changes).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


def _enliven(weight: mx.array, scale: float) -> mx.array:
    """Return a scaled matrix; add noise to a constant weight."""
    if weight.size < 2 or not mx.issubdtype(weight.dtype, mx.floating):
        return weight
    if float(mx.max(weight) - mx.min(weight)) > 0:
        return weight * scale if weight.ndim == 2 else weight
    return weight + _NOISE * mx.random.normal(weight.shape).astype(weight.dtype)

"""Tiny models of every architecture that mlx-lm has, made in memory."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.tests.support.architecture_configs import OWN
from greenroom.tests.support.architecture_fields import COMMON, NO_ARCHITECTURE, NOT_MADE

_NOISE = 0.3
"""Added where weights are all equal: a recurrent block that starts at zero would pass everything on."""


def names() -> list[str]:
    """Return the architectures that can be made: the files of mlx-lm that hold one."""
    import_text_libraries()
    folder = Path(importlib.import_module("mlx_lm.models").__path__[0])
    stems = {path.stem for path in folder.glob("*.py")}
    return sorted(stems - NO_ARCHITECTURE - set(NOT_MADE) - {"__init__"})


def config_of(name: str) -> dict[str, Any]:
    """Return the config.json of a tiny model of that architecture."""
    own = dict(OWN.get(name, {}))
    if "text_config" in own:
        text, further = own.pop("text_config")
        inner = {**COMMON, **OWN.get(text, {}), "model_type": text, **further}
        inner.pop("text_config", None)
        own["text_config"] = inner
    return {**COMMON, "model_type": name, "eos_token_id": 2, **own}


def make(name: str, seed: int = 0) -> Any:
    """Return a tiny model of that architecture with random weights, none of which is dead."""
    import_text_libraries()
    from mlx.utils import tree_map
    from mlx_lm.utils import _get_classes

    config = config_of(name)
    model_class, arguments = _get_classes(config)
    mx.random.seed(seed)
    model = model_class(arguments.from_dict(config))
    model.update(tree_map(_enliven, model.parameters()))
    mx.eval(model.parameters())
    return model


def _enliven(weight: mx.array) -> mx.array:
    """Return weights as they are, but with noise where they are all alike."""
    if weight.size < 2 or not mx.issubdtype(weight.dtype, mx.floating):
        return weight
    if float(mx.max(weight) - mx.min(weight)) > 0:
        return weight * 3 if weight.ndim == 2 else weight
    return weight + _NOISE * mx.random.normal(weight.shape).astype(weight.dtype)

"""Tiny models of mlx-audio's architectures with random weights; their output is noise."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from greenroom.engine.loading.libraries import import_model_code
from greenroom.tests.support.models.tiny_models import CHAT_TEMPLATE, TOKENIZER

Category = Literal["tts", "stt"]
Config = dict[str, Any]

_SCALE = 3.0
"""Scale of random weights. Unscaled ones give the same output for any input."""
_LEAST = 0.02
"""Spread of weights that an architecture initialises to zero."""


@attrs.frozen
class SoundKind:
    """Contents of one architecture's folder.

    Args:
        config: Function from token ids to config.json.
        tokens: Tokens added to the tokenizer; None for an architecture without a standard tokenizer.
        files: Function that writes further files.
        scale: Factor on the random weights.
    """

    config: Callable[[Mapping[str, int]], Config]
    tokens: tuple[str, ...] | None = ()
    files: Callable[[Path], None] | None = None
    scale: float = _SCALE


def make_sound_model(folder: Path, category: Category, architecture: str, kind: SoundKind) -> Path:
    """Make a model folder, and return it."""
    import mlx.core as mx

    folder.mkdir(parents=True, exist_ok=True)
    ids = {} if kind.tokens is None else _write_tokenizer(folder, kind.tokens)
    config = kind.config(ids)
    (folder / "config.json").write_text(json.dumps(config))
    if kind.files is not None:
        kind.files(folder)
    module = import_model_code(f"mlx_audio.{category}.models.{architecture}")
    mx.random.seed(0)
    read = {**json.loads(json.dumps(config)), "model_path": str(folder), "tokenizer_name": str(folder)}
    model = module.Model(module.ModelConfig.from_dict(read) if hasattr(module, "ModelConfig") else read)
    weights = random_weights(model, kind.scale)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


def random_weights(model: Any, scale: float = _SCALE) -> dict[str, Any]:
    """Return random weights of a model, with axes as published."""
    return _as_published(_random_weights(model, scale), model)


def _random_weights(model: Any, scale: float) -> dict[str, Any]:
    import mlx.core as mx
    from mlx.utils import tree_flatten

    weights = dict(tree_flatten(model.parameters()))
    for name, value in weights.items():
        if not mx.issubdtype(value.dtype, mx.floating):
            continue
        if value.size and mx.abs(value).max().item() == 0:
            weights[name] = mx.random.normal(value.shape, value.dtype, scale=_LEAST)
        elif value.ndim == 2:
            weights[name] = value * scale
    return weights


def _as_published(weights: dict[str, Any], model: Any) -> dict[str, Any]:
    """Return weights with axes in the published order, which the library's `sanitize` converts."""
    import mlx.core as mx

    sanitize = getattr(model, "sanitize", None)
    if sanitize is None:
        return weights
    read = sanitize(dict(weights))
    stored = dict(weights)
    for name, value in weights.items():
        if name in read and read[name].shape != value.shape:
            axes = next(axes for axes in _ORDERS[value.ndim] if _lands(sanitize, name, value, axes))
            stored[name] = mx.contiguous(value.transpose(*axes))
    return stored


_ORDERS: Mapping[int, tuple[tuple[int, ...], ...]] = {
    3: ((0, 2, 1), (2, 0, 1), (1, 2, 0)),
    4: ((0, 3, 1, 2), (0, 2, 3, 1), (3, 0, 1, 2)),
}
"""Permutations of axes, by number of axes."""


def _lands(sanitize: Any, name: str, value: Any, axes: tuple[int, ...]) -> bool:
    read = sanitize({name: value.transpose(*axes)})
    return name in read and read[name].shape == value.shape


def _write_tokenizer(folder: Path, extra: tuple[str, ...]) -> dict[str, int]:
    """Write a byte-level BPE tokenizer with further tokens; return its vocabulary."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.add_special_tokens(list(extra))
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return {**tokenizer.get_vocab(), "": tokenizer.get_vocab_size()}

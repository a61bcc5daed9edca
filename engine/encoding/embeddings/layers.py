"""Layers after the pooling. Source: models/Dense.py and models/LayerNorm.py of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
from mlx import nn

from greenroom.engine.catalog.files.sentence_transformers_config import Layer
from greenroom.engine.loading.read_weights import load_arrays
from greenroom.engine.loading.recorded_files import recorded_files

_ACTIVATIONS: dict[str, Callable[[mx.array], mx.array]] = {
    "Identity": lambda values: values,
    "Tanh": mx.tanh,
    "Sigmoid": mx.sigmoid,
    "ReLU": nn.relu,
    "GELU": nn.gelu,
    "SiLU": nn.silu,
}


def load_layer(layer: Layer) -> Callable[[mx.array], mx.array]:
    """Return the layer as a function of float32 vectors `[rows, numbers]`, with its weights in memory.

    Raises:
        ValueError: One sentence: its files are missing, or name an unknown activation.
    """
    if layer.activation not in _ACTIVATIONS:
        raise ValueError(
            f"its layer {layer.folder.name} asks for '{layer.activation}', which is not known here"
        )
    file = layer.folder / "model.safetensors"
    if not file.is_file():
        raise ValueError(f"its layer {layer.folder.name} has no model.safetensors")
    with recorded_files():
        weights = {name: value.astype(mx.float32) for name, value in load_arrays(file).items()}
        mx.eval(weights)
    if layer.kind == "LayerNorm":
        return _layer_norm(weights, layer)
    weight, bias = _weight(weights, "linear.weight", layer), weights.get("linear.bias")
    activate = _ACTIVATIONS[layer.activation]

    def dense(values: mx.array) -> mx.array:
        product = values @ weight.T
        return activate(product if bias is None else product + bias)

    return dense


def _layer_norm(weights: dict[str, mx.array], layer: Layer) -> Callable[[mx.array], mx.array]:
    weight, bias = _weight(weights, "norm.weight", layer), _weight(weights, "norm.bias", layer)
    return lambda values: mx.fast.layer_norm(values, weight, bias, 1e-5)


def _weight(weights: dict[str, mx.array], name: str, layer: Layer) -> mx.array:
    if name not in weights:
        raise ValueError(f"its layer {layer.folder.name} has no {name}")
    return weights[name]

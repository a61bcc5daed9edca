"""One of mlx-vlm's models, as our batches call a model: tokens and a cache in, logits out."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.engine.kv_cache.caches import Cache, flat_layers
from greenroom.engine.loading.batching.digest import digest_of_files


class VisionLanguageModel:
    """The language model of a model that sees, without memory of its own.

    mlx-vlm keeps the positions of the last prompt on the instance, which rows of a batch would share. Here
    they come with each call, so that rows with images, rows without and resumed ones mix.

    Args:
        model: One of mlx-vlm's.

    Attributes:
        model: That one: the tower, what joins images and tokens, and the language model.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._language_model = model.language_model
        self._has_grid_positions = hasattr(self._language_model, "get_rope_index")

    def __call__(
        self,
        tokens: mx.array,
        cache: Cache | None = None,
        *,
        position_shifts: Sequence[int] = (),
        positions: mx.array | None = None,
        input_embeddings: mx.array | None = None,
        **features: Any,
    ) -> mx.array:
        """Return logits `[rows, tokens, vocabulary]`.

        Args:
            tokens: `[rows, tokens]`.
            position_shifts: What the position of each row's tokens is more than their places.
            positions: `[axes, rows, tokens]` in place of those that follow from the cache and the shifts.
            input_embeddings: `[rows, tokens, hidden]` in place of the tokens' own.
            features: What else the language model takes of images.
        """
        if self._has_grid_positions:
            if positions is None:
                positions = _positions(tokens.shape, cache, position_shifts)
            features["position_ids"] = positions
        output = self._language_model(tokens, inputs_embeds=input_embeddings, cache=cache, **features)
        logits: mx.array = output.logits
        return logits

    def __getattr__(self, name: str) -> Any:
        if name == "model":  # not there yet
            raise AttributeError(name)
        return getattr(self.model.language_model, name)

    def parameters(self) -> Any:
        """Return all weights, those of the tower too."""
        return self.model.parameters()

    def update(self, parameters: Any) -> None:
        """Replace weights."""
        self.model.update(parameters)

    def make_cache(self) -> Cache:
        """Return an empty plain cache, of mlx-lm's classes where mlx-vlm has copies of them."""
        from mlx_vlm.models.cache import make_prompt_cache

        return [_own_class(layer) for layer in make_prompt_cache(self._language_model)]

    def grid_positions(self, tokens: Sequence[int], inputs: dict[str, mx.array]) -> tuple[mx.array, int]:
        """Return the positions of a prompt's tokens, `[axes, 1, prompt]`, and the shift behind it.

        Args:
            inputs: What the processor says of all its images, one below the other.
        """
        takes = self._language_model.get_rope_index.__code__.co_varnames
        grids = {name: value for name, value in inputs.items() if "grid" in name and name in takes}
        positions, shift = self._language_model.get_rope_index(mx.array([list(tokens)]), **grids)
        if positions.ndim == 2:
            positions = mx.broadcast_to(positions[None], (3, *positions.shape))
        return positions, int(np.array(shift).reshape(-1)[0])

    @property
    def code_digest(self) -> str | None:
        """A hash of the code that computes it; None if that came with the model."""
        module = sys.modules[type(self.model).__module__].__file__
        models = Path(importlib.import_module("mlx_vlm.models").__path__[0])
        if module is None or models not in Path(module).parents:
            return None
        files = {Path(__file__), *models.glob("*.py"), *Path(module).parent.glob("*.py")}
        return digest_of_files(sorted(files))

    @property
    def has_grid_positions(self) -> bool:
        """Whether the tokens of an image have positions in rows and columns (M-RoPE)."""
        return self._has_grid_positions


def _positions(shape: Sequence[int], cache: Cache | None, shifts: Sequence[int]) -> mx.array:
    """Return where tokens stand that follow what is cached, alike on each axis: `[3, rows, tokens]`."""
    rows, count = shape
    layers = flat_layers(cache or [])
    offset = next((layer.offset for layer in layers if hasattr(layer, "offset")), 0)
    starts = mx.array(offset).reshape(-1, 1)
    if shifts:
        starts = starts + mx.array(list(shifts))[:, None]
    return mx.broadcast_to(starts + mx.arange(count), (3, rows, count))


def _own_class(layer: Any) -> Any:
    """Return mlx-lm's cache of the same name, which this server knows how to pad, store and quantize."""
    from mlx_lm.models.cache import KVCache, RotatingKVCache

    if type(layer).__name__ == "KVCache":
        return KVCache()
    if type(layer).__name__ == "RotatingKVCache":
        return RotatingKVCache(max_size=layer.max_size, keep=layer.keep)
    return layer

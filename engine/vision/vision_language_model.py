"""An adapter from mlx-vlm's models to the batches' interface: tokens and a cache in, logits out."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.engine.kv_cache.caches import Cache, flat_layers
from greenroom.engine.loading.batching_table import digest_of_files
from greenroom.schemas.messages.prepared_input import PreparedImage

_ONE_AXIS = "minimax_m3"
"""Beginning of architectures whose `get_rope_index` gives image tokens positions in a line, as texts have."""


class VisionLanguageModel:
    """The language model of a vision model, without state of its own.

    mlx-vlm keeps the positions of the last prompt on the instance, which the rows of a batch would share.
    Here each call passes them, so that a batch can mix rows with images, rows without and resumed ones.

    Attributes:
        model: The same model: tower, projector and language model.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._language_model = model.language_model
        self._has_grid_positions = hasattr(self._language_model, "get_rope_index")
        self._has_one_axis = str(model.config.model_type).startswith(_ONE_AXIS)

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
            position_shifts: Difference of position and index for each row's tokens.
            positions: `[axes, rows, tokens]` in place of those that follow from the cache and the shifts.
            input_embeddings: `[rows, tokens, hidden]` in place of the tokens' own.
            features: Further arguments of the language model about images.
        """
        if self._has_grid_positions:
            if positions is None:
                positions = _positions(tokens.shape, cache, position_shifts)
            features["position_ids"] = positions[0] if self._has_one_axis else positions
        output = self._language_model(tokens, inputs_embeds=input_embeddings, cache=cache, **features)
        logits: mx.array = output.logits
        return logits

    def __getattr__(self, name: str) -> Any:
        if name == "model":  # Not set yet; a lookup would recurse.
            raise AttributeError(name)
        return getattr(self.model.language_model, name)

    def parameters(self) -> Any:
        return self.model.parameters()

    def update(self, parameters: Any) -> None:
        self.model.update(parameters)

    def make_cache(self) -> Cache:
        """Return an empty cache without batching, with mlx-lm's classes in place of mlx-vlm's copies."""
        from mlx_vlm.models.cache import make_prompt_cache

        return [_own_class(layer) for layer in make_prompt_cache(self._language_model)]

    def grid_positions(self, tokens: Sequence[int], inputs: dict[str, mx.array]) -> tuple[mx.array, int]:
        """Return a prompt's position ids, `[axes, 1, prompt]`, and the shift of positions after it. `inputs`:
        the processor's outputs of all the prompt's images, concatenated.
        """
        takes = self._language_model.get_rope_index.__code__.co_varnames
        grids = {name: value for name, value in inputs.items() if "grid" in name and name in takes}
        positions, shift = self._language_model.get_rope_index(mx.array([list(tokens)]), **grids)
        if positions.ndim == 2:
            positions = mx.broadcast_to(positions[None], (3, *positions.shape))
        return positions, int(np.array(shift).reshape(-1)[0])

    @property
    def code_digest(self) -> str | None:
        """A hash of the code that computes the model; None if the code came with the model."""
        module = sys.modules[type(self.model).__module__].__file__
        models = Path(importlib.import_module("mlx_vlm.models").__path__[0])
        if module is None or models not in Path(module).parents:
            return None
        files = {Path(__file__), *models.glob("*.py"), *Path(module).parent.glob("*.py")}
        return digest_of_files(sorted(files))

    @property
    def has_grid_positions(self) -> bool:
        """True if image tokens have row and column positions (M-RoPE)."""
        return self._has_grid_positions


def _positions(shape: Sequence[int], cache: Cache | None, shifts: Sequence[int]) -> mx.array:
    """Return positions that continue the cache, the same on each axis: `[3, rows, tokens]`."""
    rows, count = shape
    layers = flat_layers(cache or [])
    offset = next((layer.offset for layer in layers if hasattr(layer, "offset")), 0)
    starts = mx.array(offset).reshape(-1, 1)
    if shifts:
        starts = starts + mx.array(list(shifts))[:, None]
    return mx.broadcast_to(starts + mx.arange(count), (3, rows, count))


def _own_class(layer: Any) -> Any:
    """Return mlx-lm's cache of the same name, which this server can pad, store and quantize."""
    from mlx_lm.models.cache import KVCache, RotatingKVCache

    if type(layer).__name__ == "KVCache":
        return KVCache()
    if type(layer).__name__ == "RotatingKVCache":
        return RotatingKVCache(max_size=layer.max_size, keep=layer.keep)
    return layer


_OVERLAY = "_apply_blockwise_bidirectional_overlay"
"""mlx-vlm's method that adds this attention to the mask; it works only with an empty cache."""


def attends_within_images(model: Any) -> bool:
    """Return whether prefill must give the model each image in one chunk."""
    text_model = getattr(model.language_model, "model", None)
    attention = getattr(getattr(text_model, "config", None), "use_bidirectional_attention", None)
    return attention == "vision" and hasattr(text_model, _OVERLAY)


def patch_image_overlay(model: Any) -> None:
    """Replace a model's mask overlay by one that also works after cached tokens and earlier chunks."""
    if not attends_within_images(model):
        return
    text_model = model.language_model.model

    def overlay(mask: mx.array, kinds: mx.array | None) -> mx.array:
        rows, columns = mask.shape[-2:]
        if kinds is None or kinds.shape[1] != rows:
            return mask
        images = text_model._block_sequence_ids_for_mask(kinds)
        same = (images[:, :, None] == images[:, None]) & (images[:, None] >= 0)
        cached = mx.zeros((len(same), rows, columns - rows), dtype=mx.bool_)
        return mask | mx.concatenate([cached, same], axis=-1)[:, None]

    setattr(text_model, _OVERLAY, overlay)


def token_kinds(
    tokens: np.ndarray[Any, Any], images: list[PreparedImage], image_token: int
) -> np.ndarray[Any, Any]:
    """Return `mm_token_type_ids`: 1 for each token that stands for a part of an image, else 0."""
    kinds = np.zeros(len(tokens), dtype=np.int32)
    for image in images:
        span = slice(image.start, image.end)
        kinds[span] = tokens[span] == image_token
    return kinds


def length_without_split(images: list[PreparedImage], start: int, count: int) -> int:
    """Return the length of a chunk of about `count` tokens from `start` on that splits no image."""
    for image in images:
        if image.start < start + count < image.end:
            return (image.start if image.start > start else image.end) - start
    return count


_MODULE = "mlx_vlm.models.deepseek_v41.engram"


def gather_without_default_device() -> None:
    """Replace mlx-vlm's lookup, if its module is imported.

    The library's version enters `mx.stream(mx.cpu)`, which changes the default device of the whole process:
    other models' threads would meanwhile build operations for the CPU.
    """
    if (library := sys.modules.get(_MODULE)) is not None:
        library.QuantizedEngramEmbedding.__call__ = _gather


def _gather(table: Any, indices: mx.array) -> mx.array:
    """Return the rows `[..., width]` in bfloat16, gathered on the CPU, dequantized on the default device."""
    packed = [table.weight, table.scales] + ([] if table.biases is None else [table.biases])
    rows = [mx.take(part, indices, axis=0, stream=mx.cpu) for part in packed]
    mx.eval(rows)
    biases = rows[2] if len(rows) == 3 else None
    return mx.dequantize(
        rows[0],
        rows[1],
        biases,
        group_size=table.group_size,
        bits=table.bits,
        mode=table.mode,
        dtype=mx.bfloat16,
    )


# Correction of mlx-vlm's Gemma 3n: the scale of text embeddings in prompts with images.
#
# The language model multiplies the embeddings of tokens by the square root of their width, as the published
# code does. `get_input_embeddings` omits this factor for prompts with images (mlx-vlm 0.7.10).

_UNSCALED = frozenset({"gemma3n"})


def scale_prompts(model: Any) -> None:
    """Patch a model to scale the text embeddings of prompts with images like those of other prompts."""
    config = model.config
    if config.model_type not in _UNSCALED or "get_input_embeddings" in vars(model):
        return
    make = model.get_input_embeddings
    scale = config.text_config.hidden_size**0.5
    first_other = model.embed_vision.vocab_offset

    def get_input_embeddings(input_ids: mx.array, *arguments: Any, **named: Any) -> Any:
        made = make(input_ids, *arguments, **named)
        others = (input_ids == config.image_token_id) | (input_ids == config.audio_token_id)
        text = (input_ids < first_other) & ~others
        made.inputs_embeds = mx.where(text[..., None], made.inputs_embeds * scale, made.inputs_embeds)
        return made

    model.get_input_embeddings = get_input_embeddings

"""Support for models with bidirectional attention within an image (Gemma 4)."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.schemas.messages.prepared_input import PreparedImage

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

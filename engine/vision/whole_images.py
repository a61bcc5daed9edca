"""Models in which a token of an image attends to all of it, also to what stands behind (Gemma 4)."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from greenroom.schemas.messages.prepared_input import PreparedImage

_OVERLAY = "_apply_blockwise_bidirectional_overlay"
"""mlx-vlm's method that lets them; it does so only where nothing is cached."""


def sees_whole_images(model: Any) -> bool:
    """Return whether one of mlx-vlm's models has to be given each image in one piece."""
    text_model = getattr(model.language_model, "model", None)
    attention = getattr(getattr(text_model, "config", None), "use_bidirectional_attention", None)
    return attention == "vision" and hasattr(text_model, _OVERLAY)


def see_behind_cached(model: Any) -> None:
    """Have such a model see whole images behind cached tokens too, and behind chunks before."""
    if not sees_whole_images(model):
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
    """Return 1 for each token of a prompt that stands for a part of an image, else 0: `mm_token_type_ids`."""
    kinds = np.zeros(len(tokens), dtype=np.int32)
    for image in images:
        span = slice(image.start, image.end)
        kinds[span] = tokens[span] == image_token
    return kinds


def whole_pieces(images: list[PreparedImage], start: int, count: int) -> int:
    """Return how many tokens from that one on make a chunk of about so many that cuts no image."""
    for image in images:
        if image.start < start + count < image.end:
            return (image.start if image.start > start else image.end) - start
    return count

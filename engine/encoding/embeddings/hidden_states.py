"""Encoders that map tokens to hidden states, with replacements where the library's code is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx

Encode = Callable[[mx.array, mx.array], mx.array]
"""Maps ids and mask `[rows, width]` to `[rows, width, hidden]`; the values at padding are arbitrary."""


def hidden_states(model: Any, config: Mapping[str, Any]) -> Encode:
    """Return the encoder of a loaded model.

    Args:
        config: Content of config.json.
    """
    if config.get("model_type") == "gemma3_text":
        return _gemma3(model, config)
    if config.get("model_type") == "llama_nemotron_vl":
        return _two_way_llama(model)
    if config.get("model_type") == "qwen3_vl_embedding":
        return _forgetful(model)

    def encode(ids: mx.array, mask: mx.array) -> mx.array:
        hidden: mx.array = model(ids, attention_mask=mask).last_hidden_state
        return hidden

    return encode


def _forgetful(model: Any) -> Encode:
    """Return Qwen3-VL's encoder without state: mlx-vlm reuses the positions of the previous call."""

    def encode(ids: mx.array, mask: mx.array) -> mx.array:
        model.language_model._position_ids = model.language_model._rope_deltas = None
        hidden: mx.array = model(ids, attention_mask=mask).last_hidden_state
        return hidden

    return encode


def _two_way_llama(model: Any) -> Encode:
    """Return the encoder of Llama Nemotron VL's text half.

    mlx-embeddings casts its mask to the type of the token embeddings: integers if those are quantized.
    """
    inner = model.language_model

    def encode(ids: mx.array, mask: mx.array) -> mx.array:
        hidden: mx.array = inner(ids, mask.astype(mx.bool_)[:, None, None, :])
        return hidden

    return encode


def _gemma3(model: Any, config: Mapping[str, Any]) -> Encode:
    """Return Gemma 3's encoder, with sliding-window attention to both sides in its local layers.

    Both libraries let these layers see the whole text, which changes the result for texts longer than half
    the window. Source: transformers, modeling_gemma3.py (`use_bidirectional_attention`).
    """
    inner, pattern = model.model, model.config.sliding_window_pattern
    window = model.config.sliding_window // 2 + 1
    kinds = ("sliding_attention", "full_attention")
    layer_types = config.get("layer_types") or [
        kinds[at % pattern == 0] for at in range(1, len(inner.layers) + 1)
    ]

    def encode(ids: mx.array, mask: mx.array) -> mx.array:
        hidden = inner.embed_tokens(ids)
        hidden = hidden * mx.array(model.config.hidden_size**0.5, mx.bfloat16).astype(hidden.dtype)
        seen = mask.astype(mx.bool_)[:, None, None, :]
        masks = {"full_attention": seen, "sliding_attention": seen}
        if ids.shape[1] > window:
            places = mx.arange(ids.shape[1])
            # A padded query may see no token in its window; it sees all, since an empty softmax is NaN.
            near = (mx.abs(places[:, None] - places) < window) | ~mask.astype(mx.bool_)[:, None, :, None]
            masks["sliding_attention"] = seen & near
        for layer, kind in zip(inner.layers, layer_types, strict=True):
            hidden = layer(hidden, masks[kind], None)
        normalized: mx.array = inner.norm(hidden)
        return normalized

    return encode

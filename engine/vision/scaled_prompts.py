"""Correction of mlx-vlm's Gemma 3n: the scale of text embeddings in prompts with images.

The language model multiplies the embeddings of tokens by the square root of their width, as the published
code does. `get_input_embeddings` omits this factor for prompts with images (mlx-vlm 0.7.10).
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

_UNSCALED = frozenset({"gemma3n"})


def scale_prompts(model: Any) -> None:
    """Patch a model to scale the text embeddings of prompts with images like those of other prompts.

    Args:
        model: A model of mlx-vlm; it changes only if it lacks the scale.
    """
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

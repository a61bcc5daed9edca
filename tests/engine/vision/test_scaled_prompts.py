"""Prompts with images have the scale of embeddings that prompts without have."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx

from greenroom.engine.loading.libraries import import_vision_libraries
from greenroom.engine.vision.open_vision_engine import load_vision_lazily
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.architectures.vision.vision_folders import make_vision_folder


def test_a_prompts_embeddings_mean_what_its_tokens_do(tmp_path: Path) -> None:
    import_vision_libraries()
    model = load_vision_lazily(make_vision_folder("gemma3n", tmp_path / "gemma3n"), Settings())
    tokens = mx.array([[5, 17, 300, 42]])
    made = model.model.get_input_embeddings(tokens)
    embedded = model(tokens, input_embeddings=made.inputs_embeds, per_layer_inputs=made.per_layer_inputs)
    assert mx.allclose(embedded, model(tokens), atol=1e-4).item()

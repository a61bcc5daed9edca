"""DeepSeek V4.1's hash tables: rows equal mlx-vlm's, and MLX's default device does not change."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.loading.libraries import import_vision_libraries
from greenroom.engine.vision.open_vision_engine import load_vision_lazily
from greenroom.engine.vision.vision_language_model import gather_without_default_device
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.architectures.vision.vision_folders import make_vision_folder


@pytest.mark.parametrize("mode", ["affine", "mxfp4"])
def test_rows_are_the_librarys(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import_vision_libraries()
    table_class = importlib.import_module("mlx_vlm.models.deepseek_v41.engram").QuantizedEngramEmbedding
    group = 64 if mode == "affine" else 32
    values = mx.random.normal((50, 128), key=mx.random.key(0)).astype(mx.bfloat16)
    table = table_class(50, 128, group_size=group, mode=mode)
    table.weight, table.scales, *biases = mx.quantize(values, group_size=group, bits=4, mode=mode)
    table.biases = biases[0] if biases else None
    indices = mx.array([[3, 0], [49, 3]])
    monkeypatch.setattr(table_class, "__call__", table_class.__call__)  # Restores the method after the test.
    rows = table(indices)

    def refuse(*_: Any) -> Any:
        raise AssertionError("the default device would change")

    gather_without_default_device()
    monkeypatch.setattr(mx, "stream", refuse)
    assert mx.array_equal(table(indices), rows)


def test_a_prompts_embeddings_mean_what_its_tokens_do(tmp_path: Path) -> None:
    import_vision_libraries()
    model = load_vision_lazily(make_vision_folder("gemma3n", tmp_path / "gemma3n"), Settings())
    tokens = mx.array([[5, 17, 300, 42]])
    made = model.model.get_input_embeddings(tokens)
    embedded = model(tokens, input_embeddings=made.inputs_embeds, per_layer_inputs=made.per_layer_inputs)
    assert mx.allclose(embedded, model(tokens), atol=1e-4).item()

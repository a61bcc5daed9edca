"""Tests of the context length stated in a model's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.catalog.kind_detection import detect, holds_vision_weights
from greenroom.tests.support.models.weight_headers import write_weights


def model(folder: Path, **config: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


CONTEXTS: list[tuple[dict[str, Any], int]] = [
    ({"max_position_embeddings": 40960}, 40960),
    ({"text_config": {"max_position_embeddings": 5000}}, 5000),
    ({"text_config": {"max_position_embeddings": 5000}, "max_position_embeddings": 100}, 5000),
    ({"n_positions": 1024}, 1024),
    ({"max_position_embeddings": 32768, "sliding_window": 4096}, 32768),
    (
        {
            "max_position_embeddings": 40960,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
        },
        131072,
    ),
    (
        {
            "max_position_embeddings": 131072,
            "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
        },
        131072,
    ),
    (
        {
            "max_position_embeddings": 4096,
            "rope_parameters": {
                "full_attention": {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 4096}
            },
        },
        8192,
    ),
    ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}}, 4096),
    ({"max_position_embeddings": True, "n_ctx": 77}, 77),
    ({"max_position_embeddings": -5}, 8192),
    ({"max_position_embeddings": 10**30}, 8192),
    ({"max_position_embeddings": "long", "rope_scaling": "yarn", "text_config": 7}, 8192),
    ({}, 8192),
]


@pytest.mark.parametrize(("config", "context"), CONTEXTS)
def test_the_context_is_what_the_files_say(tmp_path: Path, config: dict[str, Any], context: int) -> None:
    assert detect(model(tmp_path, model_type="mamba", **config)).context == context


def test_the_context_may_stand_elsewhere(tmp_path: Path) -> None:
    assert detect(model(tmp_path, model_type="gemma3_text")).context == 32768, "mlx-lm's own default"
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 12345}')
    assert detect(model(tmp_path, model_type="gemma3_text")).context == 12345
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 1000000000000000019884624838656}')
    assert detect(model(tmp_path, model_type="gemma3_text")).context == 32768


def test_vision_weights_are_found_in_an_index_or_headers_and_broken_files_hold_none(tmp_path: Path) -> None:
    assert not holds_vision_weights(tmp_path)
    write_weights(tmp_path / "model-00002.safetensors", "model.visual.blocks.0.attn.qkv.weight")
    assert holds_vision_weights(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"model.layers.0.self_attn.q_proj.weight": "x"}}')
    assert not holds_vision_weights(tmp_path)
    index.write_text('{"weight_map": {"vpm.encoder.weight": "x"}}')
    assert holds_vision_weights(tmp_path)
    index.write_text("{")
    for junk in (
        b"",
        b"\xff" * 8,
        b"\x05" + bytes(7) + b"{",
        (2**40).to_bytes(8, "little"),
        b"\x02" + bytes(7) + b"[]",
    ):
        (tmp_path / "model-00002.safetensors").write_bytes(junk)
        assert not holds_vision_weights(tmp_path)

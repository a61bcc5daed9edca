"""Tests of the validation of sizes in config.json against the tensors."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.engine.loading.weight_files import check_sizes

SHAPES = {
    **{f"model.layers.{layer}.mlp.down_proj.weight": (64, 128) for layer in range(24)},
    **{f"model.layers.0.mlp.experts.{expert}.weight": (64, 128) for expert in range(8)},
    "model.embed_tokens.weight": (32_000, 64),
    "model.layers.0.mlp.switch_mlp.weight": (16, 64, 128),
}


@pytest.mark.parametrize(
    "config",
    [
        {"num_hidden_layers": 24, "hidden_size": 64, "vocab_size": 32_000, "num_experts": 16},
        {"num_hidden_layers": 96, "comment": "a layer may be used several times"},
        {"n_routed_experts": 8, "max_position_embeddings": 10_000_000, "rope_theta": 1e9},
        {"hidden_size": 512, "comment": "quantized weights are packed"},
        {"full_attention_interval": 4, "layer_types": ["full"] * 24, "hidden_layers_id": 10**9},
        {"vision_config": {"depths": [2, 2, 18, 2]}, "eos_token_id": 10**6},
        {"block_multiple_of": 256, "block_dim": 2048, "comment": "as published for LFM2"},
        {"candidate_topk_blocks": 2048, "sparse_topk_blocks": 2048, "num_depth_bins": 256},
        {"layer_rope_theta": [10_000, 1_000_000], "sliding_window_per_layer": [4096, 4096]},
        {"block_out_channels": [128, 256, 512, 512], "stage_in_channels": [48, 1024]},
    ],
)
def test_what_is_meant_passes(config: dict[str, Any]) -> None:
    check_sizes(config, [SHAPES])


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"num_hidden_layers": 200_000}, "num_hidden_layers = 200,000, but there are weights of 24"),
        ({"text_config": {"num_hidden_layers": 10**9}}, "num_hidden_layers"),
        ({"vision_config": {"depth": 5_000}}, "depth = 5,000"),
        ({"vision_config": {"depths": [2, 5_000]}}, "depths"),
        ({"encoder": {"num_blocks": 10**6}}, "num_blocks"),
        ({"num_layers_per_stack": 5_000}, "num_layers_per_stack"),
        ({"blocks_per_stage": [2, 5_000]}, "blocks_per_stage"),
        ({"num_local_experts": 100_000}, "num_local_experts = 100,000, but there are weights of 16"),
        ({"hidden_size": 1 << 30}, "hidden_size"),
        ({"vocab_size": 1 << 40}, "no weight is wider than 32,000"),
    ],
)
def test_what_the_weights_do_not_have_is_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_sizes(config, [SHAPES])


def test_numbers_in_names_that_skip_are_no_layers() -> None:
    with pytest.raises(ValueError, match="weights of 1"):
        check_sizes({"num_hidden_layers": 200_000}, [{"model.layers.199999.weight": (4, 4)}])


def test_tensors_of_one_number_are_no_layers() -> None:
    small = {f"model.layers.{layer}.scale": (1,) for layer in range(200_000)}
    with pytest.raises(ValueError, match="its weights hold no more than 200,000 numbers"):
        check_sizes({"num_hidden_layers": 200_000}, [small])


def test_no_tensors_prove_more_layers_than_any_model_has() -> None:
    many = {f"model.layers.{layer}.mlp.weight": (64, 64) for layer in range(1_100)}
    check_sizes({"num_hidden_layers": 1_000}, [many])
    with pytest.raises(ValueError, match="num_hidden_layers = 1,100, but at most 1,024 are built"):
        check_sizes({"num_hidden_layers": 1_100}, [many])


def test_a_list_of_sizes_may_be_as_long_as_there_are_layers() -> None:
    check_sizes({"depths": [2] * 100}, [SHAPES])
    with pytest.raises(ValueError, match="depths = 5,000"):
        check_sizes({"depths": [2] * 5_000}, [SHAPES])


def test_folders_without_tensors_in_their_headers_are_not_judged() -> None:
    check_sizes({"num_hidden_layers": 200_000}, [])


def test_empty_tensors_prove_no_size() -> None:
    empty = {"wide.weight": (0, 1 << 60), "stacked.experts.weight": (1 << 60, 0, 4)}
    with pytest.raises(ValueError, match="no weight is wider than 32,000"):
        check_sizes({"vocab_size": 1 << 40}, [SHAPES | empty])
    with pytest.raises(ValueError, match="weights of 16"):
        check_sizes({"num_experts": 1 << 40}, [SHAPES | empty])

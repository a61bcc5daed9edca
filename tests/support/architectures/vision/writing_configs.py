"""Fields of tiny models that write about texts alone, for which only mlx-vlm has code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenroom.tests.support.architectures.vision.own_fields import OwnFields

_WINDOW = 16
_MIXED: dict[str, Any] = {
    "sliding_window": _WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
_LATENT: dict[str, Any] = {
    "kv_lora_rank": 16,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "num_key_value_heads": 4,
    "rope_parameters": None,
}
_LINEAR: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention"],
    "full_attention_interval": 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": {
        "rope_type": "default",
        "type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": 1.0,
        "mrope_section": [2, 3, 3],
    },
}


WRITING: Mapping[str, OwnFields] = {
    "cohere2_moe": OwnFields(
        root={**_MIXED, "prefix_dense_intermediate_size": 96, "sliding_window_pattern": 2}
    ),
    "flint": OwnFields(root=_MIXED),
    "hrm_text": OwnFields(root={"num_layers_per_stack": None, "embedding_scale": 1.0}),
    "hy_v4": OwnFields(
        root={**_LATENT, "index_head_dim": 16, "index_n_heads": 2, "index_topk": 64, "indexer_types": []}
    ),
    "klear": OwnFields(root={**_MIXED, "mlp_only_layers": [0], "decoder_sparse_step": 1}),
    "kolibri1": OwnFields(root=_MIXED),
    "limite": OwnFields(
        root={
            "sliding_window": _WINDOW,
            "global_layers": [1],
            "ve_dim": 16,
            "ve_layers": [1],
            "xsa_layers": [1],
            "attn_gate_channels": 16,
            "rope_n_pairs": 4,
            "mudd": False,
            "softcap_logits": {"kind": "sigmoid", "a": 30.0, "b": 0.0, "c": 2.0},
        }
    ),
    "longcat_flash_sparse": OwnFields(
        root={
            **_LATENT,
            "ffn_hidden_size": 96,
            "expert_ffn_hidden_size": 32,
            "moe_topk": 2,
            "index_n_heads": 2,
            "index_head_dim": 16,
            "index_topk": 64,
        }
    ),
    "minimax_m3": OwnFields(root={"dense_intermediate_size": 96, "moe_layer_freq": [0, 1]}),
    "nemotron_nas": OwnFields(
        root={
            "block_configs": [
                {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.0}},
                {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.0}},
            ]
        }
    ),
    "qwen3_5_moe_text": OwnFields(
        root={**_LINEAR, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    ),
    "qwen3_5_text": OwnFields(root=_LINEAR),
    "xing4_0": OwnFields(root={**_LATENT, "n_shared_experts": 1, "first_k_dense_replace": 1}),
    "z1t": OwnFields(root={"aft_heads": 4}),
}

"""Common config.json fields of tiny models of mlx-lm's architectures, and the architectures left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]

VOCABULARY = 2048
WINDOW = 16

NOT_MADE: Mapping[str, str] = {
    "bitnet": "its ternary layers are a Metal kernel",
    "muse_spark": "its experts are a Metal kernel",
    "phi3small": "its block-sparse attention is a Metal kernel",
    "olmo": "needs ai2-olmo, without which the file exits the interpreter",
    "prism_hadamard_qwen35": "needs a pack of 2-bit weights; its layers are those of qwen3_5",
}
"""Architectures that need Metal or packages not installed here, with the reason."""

NO_ARCHITECTURE = frozenset(
    [
        "activations",
        "base",
        "bitlinear_layers",
        "cache",
        "gated_delta",
        "mla",
        "pipeline",
        "rope_utils",
        "ssm",
        "switch_layers",
    ]
)
"""Files of mlx_lm.models that hold shared parts and no architecture."""

COMMON: Config = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "hidden_dim": 64,
    "num_hidden_layers": 4,
    "num_layers": 4,
    "n_layer": 4,
    "n_layers": 4,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_key_value_heads": 2,
    "num_kv_heads": 2,
    "n_kv_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "norm_eps": 1e-5,
    "layer_norm_eps": 1e-5,
    "layer_norm_epsilon": 1e-5,
    "layernorm_epsilon": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "use_bias": False,
    "conv_bias": False,
    "use_conv_bias": True,
    "use_qk_norm": True,
    "qk_norm": True,
    "post_norm": True,
    "partial_rotary_factor": 0.5,
    "sliding_window": WINDOW,
    "attention_window_size": WINDOW,
    "n_embd": 64,
    "n_inner": 96,
    "n_positions": 4096,
    "n_ctx": 4096,
    "block_size": 4096,
    # Mixtures of experts.
    "num_experts": 4,
    "num_local_experts": 4,
    "moe_num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_topk": 2,
    "moe_k": 2,
    "moe_top_k": 2,
    "num_shared_experts": 1,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "shared_intermediate_size": 32,
    "share_expert_dim": 32,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    # Latent attention and the sparse kind on top of it.
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "index_head_dim": 16,
    "index_n_heads": 2,
    "index_topk": 8,
    # Convolutions, state spaces and linear attention.
    "conv_kernel": 4,
    "conv_L_cache": 3,
    "state_size": 16,
    "n_groups": 1,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
    "layer_group_size": 2,
    "group_norm_size": 1,
    "mamba_d_conv": 4,
    "mamba_d_state": 16,
    "mamba_n_heads": 4,
    "mamba_d_head": 32,
    "mamba_n_groups": 1,
    "mamba_proj_bias": False,
    "mamba_conv_bias": True,
    # Scales.
    "logits_scaling": 1.0,
    "attention_multiplier": 0.25,
    "embedding_multiplier": 1.0,
    "residual_multiplier": 1.0,
    "scale_depth": 1.4,
    "scale_emb": 4.0,
    "dim_model_base": 64,
}

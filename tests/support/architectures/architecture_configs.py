"""config.json of a tiny model of every architecture that mlx-lm has.

An architecture takes its known fields from `COMMON`; `OWN` has its own fields. Windows, chunks and blocks are
shorter than 40 tokens, so that short tests reach every mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping

from greenroom.tests.support.architectures.architecture_fields import VOCABULARY, WINDOW, Config

_PATTERN = ["sliding_attention", "full_attention"] * 2
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_ROPES = {
    "full_attention": {**_ROPE, "partial_rotary_factor": 0.5},
    "sliding_attention": {**_ROPE, "partial_rotary_factor": 1.0},
}

_EXPERTS = {"gate_act": "silu", "ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2}
_GEMMA = {"query_pre_attn_scalar": 16, "hidden_activation": "gelu_pytorch_tanh"}
_LATENT = {"num_key_value_heads": 4, "head_dim": 24}
_LINEAR = {
    "linear_attn_config": {
        "kda_layers": [1, 3],
        "full_attn_layers": [2, 4],
        "num_heads": 4,
        "head_dim": 16,
        "short_conv_kernel_size": 4,
    },
    "model_max_length": 4096,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
}
_LFM = {
    "block_dim": 64,
    "block_ff_dim": 96,
    "block_multiple_of": 16,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False,
    "layer_types": ["conv", "full_attention"] * 2,
}
_LONGCAT = {
    "attention_method": "MLA",
    "zero_expert_type": "identity",
    "ffn_hidden_size": 96,
    "expert_ffn_hidden_size": 32,
    "zero_expert_num": 2,
    "mla_scale_q_lora": True,
    "mla_scale_kv_lora": True,
    "num_hidden_layers": 4,
}
_NEMOTRON = {"time_step_limit": [0.001, 100.0], "mamba_num_heads": 4, "mamba_head_dim": 32}

OWN: Mapping[str, Config] = {
    "afm7": {"num_kv_reuse_layers": 2},
    "afmoe": {"layer_types": _PATTERN, "num_dense_layers": 1},
    "baichuan_m1": {"sliding_window_layers": [0, 2], "conv_window": 2},
    "bailing_hybrid": {**_LATENT, "head_dim": 16},
    "bailing_moe_linear": {"num_key_value_heads": 4},
    "bailing_moe_v3": {"architectures": ["BailingMoeV3ForCausalLM"], "num_key_value_heads": 4},
    "cohere2": {"sliding_window_pattern": 2},
    "dbrx": {
        "d_model": 64,
        "ffn_config": {**_EXPERTS, "moe_normalize_expert_weights": 1.0},
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0},
    },
    "deepseek_v2": {
        **_LATENT,
        "topk_method": "greedy",
        "rope_scaling": {"factor": 1.0, "original_max_position_embeddings": 4096},
    },
    "deepseek_v41": {
        "compress_ratios": (0, 4, 4, 0),
        "head_dim": 32,
        "o_groups": 2,
        "o_lora_rank": 16,
        "hc_mult": 2,
        "index_topk": 4,
        "candidate_topk_blocks": 2,
    },
    "dots1": {"num_key_value_heads": 2},
    "ernie4_5_moe": {"moe_num_shared_experts": 1},
    "exaone4": {"rope_scaling": None, "sliding_window_pattern": "LG", "layer_types": _PATTERN},
    "exaone_moe": {"layer_types": _PATTERN, "is_moe_layer": [False, True, True, True]},
    "falcon_h1": {"mamba_d_ssm": 128, "mamba_chunk_size": 8},
    "falcon_mamba": {"time_step_rank": 8, "intermediate_size": 128},
    "gear": {
        **_GEMMA,
        "layer_types": ["sliding_attention", "conv_mixer", "sliding_attention", "full_attention"],
    },
    "gemma2": _GEMMA,
    "gemma3": {"text_config": ("gemma3_text", {})},
    "gemma3_text": {**_GEMMA, "sliding_window_pattern": 2},
    "gemma3n": {
        "text_config": (
            "gemma3n",
            {
                "num_hidden_layers": 6,
                "num_kv_shared_layers": 2,
                "vocab_size_per_layer_input": VOCABULARY,
                "hidden_size_per_layer_input": 16,
                "layer_types": ["sliding_attention", "full_attention"] * 3,
                "rope_local_base_freq": 10000.0,
                "final_logit_softcapping": 30.0,
                "activation_sparsity_pattern": [0.0] * 6,
                "altup_num_inputs": 2,
                "altup_coef_clip": 120.0,
                "altup_correct_scale": True,
                "altup_active_idx": 0,
                "laurel_rank": 8,
            },
        )
    },
    "gemma4": {"text_config": ("gemma4_text", {})},
    "gemma4_text": {
        "num_hidden_layers": 6,
        "global_head_dim": 32,
        "num_key_value_heads": 1,
        "vocab_size_per_layer_input": VOCABULARY,
        "hidden_size_per_layer_input": 16,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
    },
    "glm4_moe": {"rope_scaling": None},
    "glm4_moe_lite": _LATENT,
    "glm_moe_dsa": {**_LATENT, "rope_parameters": _ROPE},
    "gpt_bigcode": {"num_key_value_heads": 1},
    "gpt_neox": {"rotary_emb_base": 10000, "rotary_pct": 0.5, "num_key_value_heads": 4},
    "gpt2": {"num_key_value_heads": 4},
    "gpt_oss": {"layer_types": _PATTERN},
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "hunyuan": {
        "num_shared_expert": 1,
        "use_mixed_mlp_moe": True,
        "use_cla": True,
        "cla_share_factor": 2,
        "rope_scaling": {"alpha": 1.0, "factor": 1.0, "type": "dynamic"},
    },
    "hunyuan_v1_dense": {"rope_scaling": {"alpha": 1.0, "factor": 1.0, "type": "dynamic"}},
    "internlm3": {"rope_scaling": {"rope_type": "dynamic", "factor": 1.0}},
    "iquestloopcoder": {"loop_num": 2, "loop_window_size": 8},
    "jamba": {
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
        "mamba_expand": 2,
    },
    "kimi_k25": {"text_config": ("deepseek_v3", {})},
    "kimi_vl": {"text_config": ("deepseek_v3", {})},
    "kimi_k3": {"text_config": ("kimi_linear", {"attn_res_block_size": 2, "routed_expert_hidden_size": 32})},
    "kimi_linear": {**_LINEAR, "head_dim": 16},
    "laguna": {
        "layer_types": _PATTERN,
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        "num_attention_heads_per_layer": [4] * 4,
        "rope_parameters": _ROPES,
    },
    "lfm2": _LFM,
    "lfm2-vl": {"text_config": ("lfm2", {})},
    "lfm2_moe": {**_LFM, "num_dense_layers": 1, "use_expert_bias": True},
    "llama4": {
        "text_config": (
            "llama4_text",
            {
                "attention_chunk_size": WINDOW,
                "interleave_moe_layer_step": 2,
                "num_experts_per_tok": 1,
                "rope_scaling": None,
            },
        )
    },
    "llama4_text": {"intermediate_size_mlp": 96, "no_rope_layers": [1, 0, 1, 0]},
    "longcat_flash": _LONGCAT,
    "longcat_flash_ngram": {**_LONGCAT, "ngram_vocab_size_ratio": 8},
    "mamba": {"time_step_rank": 8, "intermediate_size": 128},
    "mamba2": {"head_dim": 32, "num_heads": 4, "time_step_limit": [0.001, 100.0], "time_step_rank": "auto"},
    "mellum": {"layer_types": _PATTERN, "rope_parameters": _ROPES},
    "mimo_v2_flash": {
        "hybrid_layer_pattern": [0, 1, 0, 1],
        "moe_layer_freq": [0, 1, 1, 1],
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "sliding_window_size": WINDOW,
        "swa_rope_theta": 10000.0,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 16,
        "swa_v_head_dim": 16,
    },
    "minicpm3": {
        "num_key_value_heads": 4,
        "rope_scaling": {"short_factor": [1.0] * 4, "long_factor": [1.0] * 4},
    },
    "minimax": {"rotary_dim": 8, "num_key_value_heads": 2},
    "minimax_m3_vl": {
        "text_config": (
            "minimax_m3_vl",
            {
                "dense_intermediate_size": 96,
                "layer_types": ["full_attention", "minimax_m3_sparse"] * 2,
                "moe_layer_freq": [0, 1, 1, 1],
                "index_block_size": 4,
                "index_topk_blocks": 2,
            },
        )
    },
    "ministral3": {
        "layer_types": _PATTERN,
        "rope_parameters": {
            **_ROPE,
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 16,
        },
    },
    "mistral3": {"text_config": ("ministral3", {"model_type": "ministral3"})},
    "mistral4": {
        **_LATENT,
        "rope_parameters": {
            **_ROPE,
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 16,
        },
    },
    "muse_glimmer": {"layer_types": _PATTERN},
    "nemotron": {"hidden_act": "relu2"},
    "nemotron-nas": {
        "block_configs": [
            {
                "attention": {"n_heads_in_group": 2, "no_op": False, "replace_with_linear": False},
                "ffn": {"ffn_mult": 1.5, "no_op": False, "replace_with_linear": False},
            }
        ]
        * 4
    },
    "nemotron_h": {**_NEMOTRON, "hybrid_override_pattern": ["M", "*", "M", "-"], "ssm_state_size": 16},
    "olmo3": {"layer_types": _PATTERN},
    "olmo_hybrid": {
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "linear_allow_neg_eigval": True,
        "num_key_value_heads": 4,
        "linear_num_key_heads": 4,
    },
    "openelm": {
        "num_transformer_layers": 4,
        "model_dim": 64,
        "ffn_dim_divisor": 16,
        "num_query_heads": [4] * 4,
        "num_kv_heads": [2] * 4,
        "ffn_multipliers": [1.0, 1.5, 2.0, 2.0],
    },
    "phi": {"num_key_value_heads": 4},
    "phimoe": {
        "rope_scaling": {
            "type": "longrope",
            "long_factor": [1.0] * 8,
            "short_factor": [1.0] * 8,
            "long_mscale": 1.0,
            "short_mscale": 1.0,
        }
    },
    "phixtral": {"num_vocab": VOCABULARY, "model_dim": 64, "rotary_dim": 8},
    "pixtral": {"text_config": ("llama", {})},
    "plamo": {"n_shared_head": 2},
    "plamo2": {
        "hidden_size_per_head": 16,
        "mamba_num_heads": 4,
        "mamba_chunk_size": 8,
        "full_attention_idx": [3],
    },
    "plamo3": {"window_size": WINDOW, "sliding_window_pattern": 2},
    "qwen": {"kv_channels": 16},
    "qwen2_vl": {"text_config": ("qwen2", {})},
    "qwen3_5": {"text_config": ("qwen3_next", {"rope_parameters": _ROPES["full_attention"]})},
    "qwen3_5_moe": {"text_config": ("qwen3_next", {"rope_parameters": _ROPES["full_attention"]})},
    "qwen3_vl": {"text_config": ("qwen3", {})},
    "qwen3_vl_moe": {"text_config": ("qwen3_moe", {})},
    "recurrent_gemma": {
        "conv1d_width": 4,
        "logits_soft_cap": 30.0,
        "block_types": ["recurrent", "attention"],
    },
    "rwkv7": {
        "a_low_rank_dim": 8,
        "v_low_rank_dim": 8,
        "gate_low_rank_dim": 8,
        "decay_low_rank_dim": 8,
    },
    "spark2_5": {"layer_types": _PATTERN, "rope_parameters": _ROPES},
    "stablelm": {"use_qkv_bias": False},
    "step3p5": {
        "num_attention_groups": 2,
        "layer_types": _PATTERN,
        "moe_layers_enum": "1,2,3",
    },
    "talkie": {"num_attention_heads": 4},
    "telechat3": {"rope_scaling": None},
}
"""Fields that differ from `COMMON`; `text_config` names an architecture whose fields come first."""

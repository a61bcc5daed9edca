"""Fields of tiny vision models that have an audio tower too, which no trial asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenroom.tests.support.architectures.vision.own_fields import VOCABULARY, OwnFields

_QWEN_TOKENS = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|audio_pad|>",
    "<|audio_start|>",
    "<|audio_end|>",
)
_QWEN_IDS = {
    "image_token_id": "token:<|image_pad|>",
    "video_token_id": "token:<|video_pad|>",
    "audio_token_id": "token:<|audio_pad|>",
    "audio_start_token_id": "token:<|audio_start|>",
    "audio_end_token_id": "token:<|audio_end|>",
    "vision_start_token_id": "token:<|vision_start|>",
    "vision_end_token_id": "token:<|vision_end|>",
}
_QWEN_PROCESSOR: dict[str, Any] = {
    "mark_token": "<|image_pad|>",
    "mark": "<|vision_start|><|image_pad|><|vision_end|>",
    "tokens": _QWEN_TOKENS,
}
_OMNI_TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "rope_scaling": {"type": "default", "rope_type": "default", "mrope_section": [2, 3, 3]},
}
_OMNI_TOWER = {
    "depth": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "out_hidden_size": 64,
    "num_heads": 4,
    "patch_size": 14,
    "spatial_patch_size": 14,
    "image_size": 56,
    "num_position_embeddings": 64,
    "deepstack_visual_indexes": [0],
}
_OMNI_EARS = {
    "d_model": 64,
    "encoder_layers": 1,
    "num_hidden_layers": 1,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "output_dim": 64,
    "downsample_hidden_size": 16,
}

HEARING: Mapping[str, OwnFields] = {
    "mimo_v2": OwnFields(
        **_QWEN_PROCESSOR,
        root={
            **_QWEN_IDS,
            "audio_config": {
                "out_hidden_size": 64,
                "audio_channels": 2,
                "input_local_attn_heads": 4,
                "input_local_dim": 64,
                "input_local_head_dim": 16,
                "input_local_intermediate_size": 96,
                "input_local_layers": 1,
                "speech_vocab_size": 32,
                "speech_zeroemb_idx": 31,
            },
        },
        preprocessor={
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": "Qwen2_5_VLProcessor",
        },
        processor={"processor_class": "Qwen2_5_VLProcessor"},
        parts={
            "text_config": {
                "num_key_value_heads": 2,
                "hybrid_layer_pattern": [0, 1],
                "moe_layer_freq": [0, 1],
                "swa_num_attention_heads": 4,
                "swa_num_key_value_heads": 2,
                "swa_head_dim": 16,
                "swa_v_head_dim": 16,
                "sliding_window_size": 128,
            },
            "vision_config": {"num_query_groups": 1, "qk_channels": 16, "vit_window_attn_types": [-1, -1]},
        },
    ),
    "nemotron_h_nano_omni": OwnFields(
        mark_token="<image>",
        tokens=("<video>", "<so_embedding>", "<so_start>", "<so_end>", "<img>", "</img>"),
        model_type="NemotronH_Nano_Omni_Reasoning_V3",
        root={
            "img_context_token_id": "token:<image>",
            "vit_hidden_size": 64,
            "downsample_ratio": 0.5,
        },
        parts={
            "text_config": {
                "model_type": "nemotron_h",
                "hybrid_override_pattern": "M*",
                "mamba_num_heads": 4,
                "mamba_head_dim": 16,
                "ssm_state_size": 16,
            },
            "vision_config": {
                "dynamic_image_min_num_patches": 4,
                "dynamic_image_max_num_patches": 64,
                "max_resolution": 112,
            },
        },
        preprocessor={"norm_mean": [0.5] * 3, "norm_std": [0.5] * 3},
    ),
    "phi4mm": OwnFields(
        root={
            "max_num_patches": 64,
            "min_num_patches": 4,
            "audio_processor": {
                "config": {
                    "attention_dim": 64,
                    "attention_heads": 4,
                    "num_blocks": 1,
                    "linear_units": 96,
                    "ext_pw_out_channel": 64,
                    "depthwise_seperable_out_channel": 64,
                    "conv_channels": 8,
                }
            },
        },
        images=1,
    ),
    "qwen3_omni_moe": OwnFields(
        **_QWEN_PROCESSOR,
        root={
            "thinker_config": {
                **_QWEN_IDS,
                "text_config": _OMNI_TEXT,
                "vision_config": _OMNI_TOWER,
                "audio_config": _OMNI_EARS,
            },
            "talker_config": {"text_config": _OMNI_TEXT, "code_predictor_config": {}},
            "code2wav_config": {},
            "enable_audio_output": False,
        },
        preprocessor={
            "image_processor_type": "Qwen2VLImageProcessor",
            "size": {"shortest_edge": 784, "longest_edge": 12544},
        },
    ),
}
"""Fields by package."""

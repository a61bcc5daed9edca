"""Fields of tiny vision models whose language model is a mixture of experts, or has linear attention."""

from __future__ import annotations

from collections.abc import Mapping

from greenroom.tests.support.architectures.vision.own_fields import OwnFields

_QWEN_IDS = {
    "vision_start_token_id": "token:<|vision_start|>",
    "vision_end_token_id": "token:<|vision_end|>",
}
_GLM_TOKENS = (
    "<|image|>",
    "<|video|>",
    "<|begin_of_image|>",
    "<|end_of_image|>",
    "<|begin_of_video|>",
    "<|end_of_video|>",
)
_LINEAR = {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4, "kda_layers": [1]}

MIXTURES: Mapping[str, OwnFields] = {
    "deepseek_v4": OwnFields(
        mark_token="<\uff5cdeepseek_image\uff5c>",
        root={
            "num_key_value_heads": 1,
            "o_groups": 2,
            "o_lora_rank": 16,
            "scoring_func": "sqrtsoftplus",
            "compress_ratios": [0, 0],
            "num_hash_layers": 1,
            "vision_n_layers": 2,
            "vision_dim": 64,
            "vision_n_heads": 4,
            "vision_inter_dim": 96,
            "vision_downsample_ratio": 2,
            "vision_max_n_token": 16,
            "vision_min_pixels": 784,
        },
    ),
    "deepseek_v41": OwnFields(
        mark_token="<\uff5cdeepseek_image\uff5c>",
        root={
            "num_key_value_heads": 1,
            "head_dim": 64,
            "qk_rope_head_dim": 32,
            "index_head_dim": 32,
            "o_groups": 2,
            "o_lora_rank": 16,
            "scoring_func": "sqrtsoftplus",
            "compress_ratios": [0, 0],
            "kv_source_layer_ids": [],
            "index_source_layer_ids": [],
            "candidate_source_layer_id": -1,
            "engram_layer_ids": [],
            "engram_num_embeddings": [],
            "vision_num_layers": 2,
            "vision_hidden_size": 64,
            "vision_num_heads": 4,
            "vision_intermediate_size": 96,
            "vision_downsample_ratio": 2,
            "vision_max_image_tokens": 16,
            "vision_min_pixels": 784,
        },
    ),
    "glm5_next": OwnFields(
        mark_token="<|image|>",
        mark="<|begin_of_image|><|image|><|end_of_image|>",
        tokens=_GLM_TOKENS,
        root={
            "video_token_id": "token:<|video|>",
            "image_start_token_id": "token:<|begin_of_image|>",
            "image_end_token_id": "token:<|end_of_image|>",
        },
        parts={
            "text_config": {
                "num_key_value_heads": 4,
                "head_dim": 0,
                "qk_rope_head_dim": 0,
                "qk_nope_head_dim": 16,
                "index_topk": 64,
                "linear_head_dim": 16,
                "linear_num_heads": 4,
                "layer_types": ["linear_attention", "deepseek_sparse_attention"],
            },
            "vision_config": {"projection_intermediate_size": 96},
        },
        preprocessor={
            "image_processor_type": "Glm4vImageProcessor",
            "size": {"shortest_edge": 784, "longest_edge": 12544},
        },
    ),
    "kimi_k3": OwnFields(
        mark_token="<|media_pad|>",
        tokens=("<|media_begin|>", "<|media_content|>", "<|media_end|>"),
        parts={
            "text_config": {
                "hidden_act": "situ",
                "activation_situ_beta": 1.0,
                "activation_situ_linear_beta": 1.0,
                "linear_attn_config": _LINEAR,
                "num_key_value_heads": 4,
                "qk_rope_head_dim": 8,
            },
            "vision_config": {
                "vt_num_attention_heads": 4,
                "vt_num_hidden_layers": 2,
                "vt_hidden_size": 64,
                "vt_intermediate_size": 96,
                "qkv_hidden_size": 64,
                "mm_hidden_size": 64,
                "merge_kernel_size": [2, 2],
            },
        },
    ),
    "step3p7": OwnFields(
        mark_token="<im_patch>",
        parts={
            "text_config": {
                "num_attention_groups": 2,
                "moe_layers_enum": [1],
                "rope_scaling": None,
            }
        },
        images=1,
    ),
    "youtu_vl": OwnFields(
        mark_token="<|image_pad|>",
        mark="<|vision_start|><|image_pad|><|vision_end|>",
        tokens=("<|vision_start|>", "<|vision_end|>", "<|video_pad|>"),
        flat=True,
        root=_QWEN_IDS,
        parts={"text_config": {"n_routed_experts": None, "num_key_value_heads": 4}},
        preprocessor={"image_processor_type": "Siglip2ImageProcessorFast"},
    ),
    "zaya1_vl": OwnFields(
        root=_QWEN_IDS,
        flat=True,
        mark="<|vision_start|><image><|vision_end|>",
        parts={"text_config": {"ffn_hidden_size": 128, "zaya_mlp_expansion": 16, "num_query_groups": 2}},
        tokens=("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
        preprocessor={"image_processor_type": "Qwen2VLImageProcessor"},
    ),
}
"""Fields by package."""


_PIXTRAL_TOWER = {"model_type": "pixtral", "image_size": 140}

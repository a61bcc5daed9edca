"""Fields of tiny vision models that cut images into crops or whose image towers have sizes of their own."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from greenroom.tests.support.architectures.vision.own_fields import VOCABULARY, OwnFields

_MOLMO_TOKENS = ("<|image|>", "<im_start>", "<low_res_im_start>", "<im_end>", "<im_col>", "<im_low>")
_MOLMO_IDS = {
    "image_start_token_id": "token:<im_start>",
    "low_res_image_start_token_id": "token:<low_res_im_start>",
    "image_end_token_id": "token:<im_end>",
    "image_low_res_id": "token:<im_low>",
    "image_patch_id": "token:<im_patch>",
    "image_col_id": "token:<im_col>",
}
_MOLMO_TOWER = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "image_num_pos": 729,
    "image_default_input_size": [378, 378],
    "vit_layers": [-1, -2],
    "text_hidden_size": 64,
}
_CROPS = {"max_crops": 2, "overlap_margins": [2, 2]}
_MINICPM_TEXT = {
    "rope_parameters": {
        "type": "default",
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [2, 3, 3],
        "partial_rotary_factor": 1.0,
    },
}
_MINICPM_TOWER = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 56,
    "patch_size": 14,
}
_GEMMA_TOKENS = {
    "image_token": "<|image|>",
    "boi_token": "<|image>",
    "eoi_token": "<image|>",
    "audio_token": "<|audio|>",
    "boa_token": "<|audio>",
    "eoa_token": "<audio|>",
}
_GEMMA_TEXT = {
    "num_hidden_layers": 4,
    "global_head_dim": 16,
    "num_global_key_value_heads": 2,
    "attention_k_eq_v": False,
    "sliding_window": 64,
    "sliding_window_pattern": 2,
    "layer_types": None,
    "rope_parameters": None,
}


def _small_mobilenet() -> Any:
    """Return stages of a small MobileNetV5, in the place of Gemma 3n's."""
    from mlx_vlm.models.gemma3n import vision

    code: Any = vision
    behind = [code._uir(0, 0, 32, 1, 2.0, is_multiscale=True)]
    return [
        [code._er(3, 16, 2)],
        [code._uir(3, 5, 16, 2, 2.0)],
        [code._uir(5, 5, 32, 2, 2.0), code._mmqa(2, 16, 2), *behind],
        [code._uir(5, 5, 32, 2, 2.0), code._mmqa(2, 16, 1), *behind],
    ]


CROPPING: Mapping[str, OwnFields] = {
    "cohere_compass": OwnFields(
        mark_token="<|IMAGE_PAD|>",
        mark="<|VISION_START|><|IMAGE_PAD|><|VISION_END|>",
        tokens=("<|VISION_START|>", "<|VISION_END|>"),
        root={
            "vision_start_token_id": "token:<|VISION_START|>",
            "vision_end_token_id": "token:<|VISION_END|>",
            "min_pixels": 784,
            "max_pixels": 12544,
        },
        parts={
            "text_config": {
                "rope_parameters": {
                    "full_attention": {
                        "rope_type": "default",
                        "rope_theta": 1e4,
                        "mrope_section": [2, 3, 3],
                    }
                }
            }
        },
    ),
    "diffusion_gemma": OwnFields(
        mark_token="<|image|>",
        parts={"text_config": {**_GEMMA_TEXT, "top_k_experts": 2}},
        tokenizer=_GEMMA_TOKENS,
        tokens=("<|image>", "<image|>", "<|audio|>", "<|audio>", "<audio|>", "<|video|>"),
        processor={"image_processor": {"patch_size": 14, "pooling_kernel_size": 2, "max_soft_tokens": 16}},
    ),
    "fastvlm": OwnFields(
        model_type="llava_qwen2",
        root={"mm_hidden_size": 128, "image_token_index": -200},
        parts={"text_config": {"model_type": "qwen2"}, "vision_config": {"image_size": 256}},
        preprocessor={"size": {"shortest_edge": 256}, "crop_size": {"height": 256, "width": 256}},
        sizes={
            "config:VisionConfig.layers": [1, 1, 1, 1, 1],
            "config:VisionConfig.embed_dims": [8, 16, 32, 64, 64],
        },
        images=1,
    ),
    "gemma3n": OwnFields(
        mark_token="<image_soft_token>",
        mark="<image_soft_token>",
        tokens=(
            "<start_of_image>",
            "<end_of_image>",
            "<audio_soft_token>",
            "<start_of_audio>",
            "<end_of_audio>",
        ),
        tokenizer={
            "image_token": "<image_soft_token>",
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
            "audio_token": "<audio_soft_token>",
            "boa_token": "<start_of_audio>",
            "eoa_token": "<end_of_audio>",
        },
        root={
            "audio_token_id": "token:<audio_soft_token>",
            "audio_config": {
                "hidden_size": 64,
                "conf_num_attention_heads": 4,
                "conf_num_hidden_layers": 1,
                "sscp_conv_channel_size": [8, 4],
                "vocab_offset": VOCABULARY,
                "vocab_size": 8,
            },
        },
        parts={
            "text_config": {
                "model_type": "gemma3n_text",
                "num_hidden_layers": 4,
                "intermediate_size": [96] * 4,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
                "sliding_window": 4096,
                "hidden_size_per_layer_input": 16,
                "vocab_size_per_layer_input": VOCABULARY,
                "laurel_rank": 8,
                "rope_scaling": None,
            },
            "vision_config": {"vocab_offset": VOCABULARY, "vocab_size": 8},
        },
        preprocessor={
            "image_processor_type": "SiglipImageProcessor",
            "size": {"height": 256, "width": 256},
        },
        processor={"image_seq_length": 256},
        sizes={
            "vision:gemma3n_mobilenet_def": _small_mobilenet,
            "vision:MobileNetV5MultiScaleFusionAdapter()": {"in_chs": [64], "out_chs": 64},
        },
        mend="with embeddings of prompts scaled, as mlx-vlm does with tokens alone",
    ),
    "gemma4_unified": OwnFields(
        mark_token="<|image|>",
        root={"eoa_token_index": "token:<audio|>", "audio_token_id": "token:<|audio|>"},
        parts={
            "text_config": _GEMMA_TEXT,
            "vision_config": {
                "patch_size": 16,
                "pooling_kernel_size": 3,
                "model_patch_size": 48,
                "mm_embed_dim": 64,
                "mm_posemb_size": 64,
                "num_soft_tokens": 16,
                "output_proj_dims": 64,
            },
        },
        tokenizer=_GEMMA_TOKENS,
        tokens=("<|image>", "<image|>", "<|audio|>", "<|audio>", "<audio|>", "<|video|>"),
        processor={
            "image_processor": {
                "patch_size": 16,
                "pooling_kernel_size": 3,
                "model_patch_size": 48,
                "max_soft_tokens": 16,
            }
        },
    ),
    "hunyuan_vl": OwnFields(
        mark_token="<|picture|>",
        mark="<|picture_start|><|picture|><|picture_end|>",
        ids={
            "<|left_out|>": 120002,
            "<|picture_start|>": 120118,
            "<|picture_end|>": 120119,
            "<|picture|>": 120120,
            "<|picture_line|>": 120121,
            "<|picture_place|>": 120122,
        },
        root={"hidden_size": 64},
        parts={
            "text_config": {
                "head_dim": 16,
                "attention_head_dim": 16,
                "tie_word_embeddings": True,
                "rope_scaling": {
                    "type": "xdrope",
                    "alpha": 1000.0,
                    "factor": 1.0,
                    "xdrope_section": [2, 2, 2, 2],
                },
            },
            "vision_config": {"max_image_size": 112, "patch_size": 16},
        },
    ),
    "inkling": OwnFields(mark_token="<|unused_200054|>", parts={"vision_config": {"patch_size": 40}}),
    "minicpmv4_6": OwnFields(
        mark_token="<unk>",
        mark="(<image>./</image>)",
        tokens=("<image>", "</image>", "<slice>", "</slice>", "<image_id>", "</image_id>"),
        root={"insert_layer_id": 0, "image_size": 56, "patch_size": 14},
        parts={"text_config": _MINICPM_TEXT, "vision_config": _MINICPM_TOWER},
        preprocessor={"scale_resolution": 112, "max_slice_nums": 2},
    ),
    "minicpmv4_7": OwnFields(
        mark_token="<|image_pad|>",
        tokens=(
            "<image>",
            "</image>",
            "<slice>",
            "</slice>",
            "<image_id>",
            "</image_id>",
            "<|video_pad|>",
            "<|line|>",
        ),
        root={
            "insert_layer_id": 0,
            "image_size": 56,
            "patch_size": 14,
            "video_token_id": "token:<|video_pad|>",
            "image_start_id": "token:<image>",
            "image_end_id": "token:</image>",
            "slice_start_id": "token:<slice>",
            "slice_end_id": "token:</slice>",
            "newline_id": 198,
        },
        parts={"text_config": _MINICPM_TEXT, "vision_config": _MINICPM_TOWER},
        preprocessor={"scale_resolution": 112, "max_slice_nums": 2},
    ),
    "mllama": OwnFields(
        mark_token="<|image|>",
        tokenizer={"bos_token": "<|endoftext|>"},
        parts={
            "text_config": {"cross_attention_layers": [1], "num_hidden_layers": 2},
            "vision_config": {
                "num_global_layers": 1,
                "vision_output_dim": 128,
                "intermediate_layers_indices": [0],
                "max_num_tiles": 4,
            },
        },
        preprocessor={"image_processor_type": "MllamaImageProcessor", "max_image_tiles": 4},
        processor={"processor_class": "MllamaProcessor"},
        beginning="<|endoftext|>",
        images=1,
    ),
    "molmo": OwnFields(
        mark_token="<im_patch>",
        mark="<|image|>",
        tokens=_MOLMO_TOKENS,
        parts={
            "text_config": {
                "d_model": 64,
                "n_kv_heads": 2,
                "mlp_hidden_size": 192,
                "embedding_size": VOCABULARY,
                "additional_vocab_size": 8,
            },
            "vision_config": {
                "image_default_input_size": [112, 112],
                "intermediate_size": 588,
                "hidden_size": 96,
                "image_emb_dim": 64,
                "image_num_heads": 4,
                "image_num_key_value_heads": 4,
                "image_num_layers": 2,
                "image_head_dim": 16,
                "image_mlp_dim": 96,
                "image_num_pos": 65,
                "d_model": 64,
                "vit_layers": [-1, -2],
            },
        },
        preprocessor={
            **_CROPS,
            "base_image_input_size": [112, 112],
            "image_token_length_w": 4,
            "image_token_length_h": 4,
        },
        images=1,
    ),
    "molmo2": OwnFields(
        mark_token="<im_patch>",
        mark="<|image|>",
        tokens=_MOLMO_TOKENS,
        root=_MOLMO_IDS,
        parts={
            "text_config": {"additional_vocab_size": 8},
            "vision_config": {"vit_config": _MOLMO_TOWER, "adapter_config": _MOLMO_TOWER},
        },
        preprocessor={"size": {"height": 378, "width": 378}},
    ),
    "molmo_point": OwnFields(
        mark_token="<im_patch>",
        mark="<|image|>",
        tokens=(*_MOLMO_TOKENS, "<patch>", "<subpatch>", "<location>"),
        root={
            **_MOLMO_IDS,
            "image_high_res_id": "token:<im_patch>",
            "image_non_indexable_patch_id": "token:<im_low>",
            "patch_embed_dim": 32,
            "patch_token_id": "token:<patch>",
            "subpatch_token_id": "token:<subpatch>",
            "location_token_id": "token:<location>",
            "adapter_config": _MOLMO_TOWER,
        },
        parts={
            "text_config": {"additional_vocab_size": 8},
            "vision_config": {"image_num_pos": 64, "image_default_input_size": [112, 112]},
        },
        sizes={
            "processing_molmo_point:MolmoPointImageProcessor": {
                "max_crops": 2,
                "overlap_margins": (2, 2),
                "base_image_input_size": (112, 112),
            }
        },
    ),
    "muse_spark": OwnFields(
        mark_token="<|patch|>",
        tokens=("<|image|>", "<|image_start|>", "<|image_end|>", "<|video|>"),
        root={
            "audio_config": {
                "hidden_sizes": [8, 8, 8, 8],
                "depths": [1, 1, 1, 1],
                "out_hidden_size": 64,
            }
        },
        parts={
            "text_config": {
                "post_norm_eps": 1e-6,
                "layer_rope_theta": [10000.0, 0.0],
                "final_logit_softcapping": 30.0,
                "output_multiplier": 1.0,
                "moe_hidden_size": 32,
                "num_shared_experts": 0,
            },
            "vision_config": {"pos_emb_height": 8, "pos_emb_width": 8},
        },
        processor={"image_processor": {"max_image_tokens": 16}},
    ),
    "phi3_v": OwnFields(
        mark_token="<|image|>",
        mark="<|image_1|>",
        tokens=("<|image_1|>",),
        parts={"vision_config": {"image_size": 336, "image_dim_out": 1024}},
        preprocessor={"num_crops": 1, "num_img_tokens": 144},
        sizes={
            "vision:VisionModel.CLIP_VIT_LARGE_PATCH14_336_CONFIG": SimpleNamespace(
                model_type="phi3_v",
                hidden_size=1024,
                image_size=336,
                intermediate_size=96,
                layer_norm_eps=1e-05,
                num_attention_heads=16,
                num_channels=3,
                num_hidden_layers=2,
                patch_size=14,
            )
        },
        images=1,
    ),
    "phi4_siglip": OwnFields(
        model_type="phi4-siglip",
        root={"mm_vision_tower": "naflex-patch14"},
        asks_library=False,  # without PyTorch its processor opens itself without end
    ),
}
"""Fields by package."""

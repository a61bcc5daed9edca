"""Fields of tiny models of mlx-vlm's vision architectures that differ from the common ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenroom.tests.support.architectures.vision.cropping_configs import CROPPING
from greenroom.tests.support.architectures.vision.hearing_configs import HEARING
from greenroom.tests.support.architectures.vision.mixture_configs import MIXTURES
from greenroom.tests.support.architectures.vision.own_fields import OwnFields
from greenroom.tests.support.architectures.vision.reading_configs import READING
from greenroom.tests.support.architectures.vision.writing_configs import WRITING

_QWEN_MARK = "<|vision_start|><|image_pad|><|vision_end|>"
_QWEN_IDS = {
    "image_token_id": "token:<|image_pad|>",
    "video_token_id": "token:<|video_pad|>",
    "vision_start_token_id": "token:<|vision_start|>",
    "vision_end_token_id": "token:<|vision_end|>",
}
_QWEN_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_MROPE = {"type": "mrope", "rope_type": "default", "mrope_section": [2, 3, 3]}


_QWEN_LINEAR = {
    "text_config": {"rope_parameters": {**_MROPE, "rope_theta": 1e4, "partial_rotary_factor": 1.0}},
    "vision_config": {"deepstack_visual_indexes": []},
}


def _qwen(processor: str, **fields: Any) -> OwnFields:
    given: dict[str, Any] = {
        "mark_token": "<|image_pad|>",
        "mark": _QWEN_MARK,
        "tokens": _QWEN_TOKENS,
        "root": {**_QWEN_IDS, "rope_scaling": _MROPE},
        "parts": {"text_config": {"rope_scaling": _MROPE, "rope_parameters": {**_MROPE, "rope_theta": 1e4}}},
        "preprocessor": {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": processor},
        "processor": {"processor_class": processor},
    }
    return OwnFields(**{**given, **fields})


_CLIP = {"model_type": "clip_vision_model", "num_hidden_layers": 3}
_SIGLIP = {"model_type": "siglip_vision_model"}
_PINPOINTS = [[56, 112], [112, 56], [112, 112]]
_LATENT = {"num_key_value_heads": 4, "topk_method": "greedy", "q_lora_rank": None, "scoring_func": "softmax"}
_PIXTRAL: dict[str, Any] = {
    "mark_token": "[IMG]",
    "tokens": ("[IMG]", "[IMG_BREAK]", "[IMG_END]"),
    "parts": {
        "text_config": {"model_type": "mistral"},
        "vision_config": {"model_type": "pixtral", "image_size": 140},
    },
    "preprocessor": {
        "image_processor_type": "PixtralImageProcessor",
        "size": {"longest_edge": 112},
        "patch_size": {"height": 14, "width": 14},
    },
}
_GLM_IDS = {
    "image_token_id": "token:<|image|>",
    "image_token_index": "token:<|image|>",
    "video_token_id": "token:<|video|>",
    "video_token_index": "token:<|video|>",
    "vision_start_token_id": "token:<|begin_of_image|>",
    "vision_end_token_id": "token:<|end_of_image|>",
    "image_start_token_id": "token:<|begin_of_image|>",
    "image_end_token_id": "token:<|end_of_image|>",
    "video_start_token_id": "token:<|begin_of_video|>",
    "video_end_token_id": "token:<|end_of_video|>",
}
_GLM: dict[str, Any] = {
    "mark_token": "<|image|>",
    "mark": "<|begin_of_image|><|image|><|end_of_image|>",
    "tokens": (
        "<|image|>",
        "<|video|>",
        "<|begin_of_image|>",
        "<|end_of_image|>",
        "<|begin_of_video|>",
        "<|end_of_video|>",
    ),
    "root": _GLM_IDS,
    "preprocessor": {
        "image_processor_type": "Glm4vImageProcessor",
        "size": {"shortest_edge": 784, "longest_edge": 12544},
    },
}
_GLM_ROPE = {"rope_type": "default", "type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}


OWN: Mapping[str, OwnFields] = {
    "aya_vision": OwnFields(
        mark_token="<|IMG_PATCH|>",
        mark="<image>",
        tokens=(
            "<image>",
            "<|START_OF_IMG|>",
            "<|END_OF_IMG|>",
            "<|IMG_LINE_BREAK|>",
            "TILE",
            "TILE_GLOBAL",
        ),
        parts={
            "text_config": {"model_type": "cohere2", "sliding_window": 4096, "sliding_window_pattern": 2},
            "vision_config": _SIGLIP,
        },
        root={"vision_feature_layer": -1},
        preprocessor={
            "image_processor_type": "GotOcr2ImageProcessor",
            "processor_class": "AyaVisionProcessor",
            "crop_to_patches": True,
            "max_patches": 4,
        },
        processor={
            "processor_class": "AyaVisionProcessor",
            "patch_size": 28,
            "img_size": 56,
            "downsample_factor": 1,
        },
    ),
    "glm4v": OwnFields(
        **{**_GLM, "parts": {"text_config": {"rope_scaling": _GLM_ROPE, "partial_rotary_factor": 1.0}}}
    ),
    "glm4v_moe": OwnFields(
        **{
            **_GLM,
            "parts": {
                "text_config": {
                    "rope_scaling": _GLM_ROPE,
                    "rope_parameters": _GLM_ROPE,
                    "partial_rotary_factor": 1.0,
                    "first_k_dense_replace": 1,
                }
            },
        }
    ),
    "glm_ocr": OwnFields(
        **{**_GLM, "parts": {"text_config": {"rope_parameters": {**_GLM_ROPE, "partial_rotary_factor": 1.0}}}}
    ),
    "granite_vision": OwnFields(
        root={"vision_feature_layer": -1, "image_grid_pinpoints": _PINPOINTS},
        parts={"text_config": {"model_type": "granite"}, "vision_config": _SIGLIP},
        preprocessor={
            "image_processor_type": "LlavaNextImageProcessor",
            "image_grid_pinpoints": _PINPOINTS,
            "size": {"shortest_edge": 56},
        },
        processor={
            "processor_class": "LlavaNextProcessor",
            "patch_size": 14,
            "vision_feature_select_strategy": "full",
        },
        images=1,
    ),
    "idefics2": OwnFields(
        parts={
            "text_config": {"model_type": "mistral"},
            "vision_config": {"model_type": "idefics2"},
            "perceiver_config": {
                "model_type": "idefics2",
                "resampler_depth": 1,
                "resampler_head_dim": 16,
                "resampler_n_heads": 4,
                "num_key_value_heads": 2,
                "resampler_n_latents": 8,
            },
        },
        preprocessor={
            "image_processor_type": "Idefics2ImageProcessor",
            "size": {"longest_edge": 56, "shortest_edge": 28},
            "do_image_splitting": False,
            "do_pad": True,
        },
        processor={"processor_class": "Idefics2Processor", "image_seq_len": 8},
    ),
    "idefics3": OwnFields(
        tokens=("<fake_token_around_image>", "<global-img>"),
        parts={
            "text_config": {"model_type": "llama"},
            "vision_config": {"model_type": "idefics3", "patch_size": 14},
        },
        root={"scale_factor": 2},
        preprocessor={
            "image_processor_type": "Idefics3ImageProcessor",
            "size": {"longest_edge": 112},
            "max_image_size": {"longest_edge": 56},
            "do_image_splitting": True,
            "do_pad": True,
            "resample": 1,
        },
        processor={"processor_class": "Idefics3Processor", "image_seq_len": 4},
    ),
    "internvl": OwnFields(
        mark_token="<IMG_CONTEXT>",
        mark="<image>",
        tokens=("<image>", "<img>", "</img>"),
        root={"max_dynamic_patch": 4},
        parts={
            "text_config": {"model_type": "qwen2"},
            "vision_config": {"model_type": "internvl_vision", "use_qk_norm": False},
        },
        processor={"image_seq_length": 4},
    ),
    "internvl_chat": OwnFields(
        mark_token="<IMG_CONTEXT>",
        mark="<image>",
        tokens=("<image>", "<img>", "</img>"),
        root={"max_dynamic_patch": 4, "force_image_size": 56},
        parts={
            "text_config": {"model_type": "qwen2"},
            "vision_config": {"model_type": "intern_vit_6b"},
        },
    ),
    "kimi_vl": OwnFields(
        mark_token="<|media_pad|>",
        tokens=("<|media_start|>", "<|media_content|>", "<|media_end|>"),
        parts={
            "text_config": {**_LATENT, "model_type": "deepseek_v3", "topk_method": "noaux_tc"},
            "vision_config": {"model_type": "moonvit", "merge_kernel_size": [2, 2]},
        },
    ),
    "lfm2_vl": OwnFields(
        model_type="lfm2-vl",
        tokens=("<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"),
        root={"encoder_patch_size": 14, "tile_size": 56, "max_image_tokens": 16, "min_image_tokens": 4},
        parts={
            "text_config": {
                "model_type": "lfm2",
                "block_dim": 64,
                "block_ff_dim": 96,
                "block_multiple_of": 16,
                "block_auto_adjust_ff_dim": False,
                "layer_types": ["conv", "full_attention"],
                "conv_dim": 64,
                "conv_dim_out": 64,
            },
            "vision_config": {"model_type": "siglip2_vision_model", "num_patches": 64},
        },
        preprocessor={
            "image_processor_type": "Lfm2VlImageProcessorFast",
            "encoder_patch_size": 14,
            "tile_size": 56,
            "max_image_tokens": 16,
            "min_image_tokens": 4,
            "do_image_splitting": False,
        },
        processor={"processor_class": "Lfm2VlProcessor"},
    ),
    "llama4": OwnFields(
        mark_token="<|patch|>",
        mark="<|image|>",
        tokens=(
            "<|image|>",
            "<|image_start|>",
            "<|image_end|>",
            "<|tile_x_separator|>",
            "<|tile_y_separator|>",
        ),
        parts={
            "text_config": {
                "model_type": "llama4_text",
                "intermediate_size_mlp": 96,
                "num_experts_per_tok": 1,
                "no_rope_layers": [1, 0],
                "interleave_moe_layer_step": 2,
                "attention_chunk_size": 4096,
            },
            "vision_config": {
                "model_type": "llama4_vision_model",
                "pixel_shuffle_ratio": 0.5,
                "projector_input_dim": 64,
                "projector_output_dim": 64,
                "vision_feature_layer": -1,
                "vision_feature_select_strategy": "default",
                "intermediate_size": 256,
            },
        },
        preprocessor={"max_patches": 4},
    ),
    "llava": OwnFields(
        parts={"text_config": {"model_type": "llama"}, "vision_config": _CLIP},
        preprocessor={"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 56}},
        processor={
            "processor_class": "LlavaProcessor",
            "patch_size": 14,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
        },
    ),
    "llava_next": OwnFields(
        parts={"text_config": {"model_type": "llama"}, "vision_config": _CLIP},
        preprocessor={
            "image_processor_type": "LlavaNextImageProcessor",
            "image_grid_pinpoints": _PINPOINTS,
            "size": {"shortest_edge": 56},
        },
        processor={
            "processor_class": "LlavaNextProcessor",
            "patch_size": 14,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
        },
        images=1,
    ),
    "llava_onevision": OwnFields(
        root={"image_grid_pinpoints": _PINPOINTS, "vision_aspect_ratio": "anyres_max_4"},
        tokens=("<video>",),
        parts={"text_config": {"model_type": "qwen2"}, "vision_config": _SIGLIP},
        preprocessor={
            "image_processor_type": "LlavaOnevisionImageProcessor",
            "image_grid_pinpoints": _PINPOINTS,
        },
        processor={
            "processor_class": "LlavaOnevisionProcessor",
            "num_image_tokens": 16,
            "vision_feature_select_strategy": "full",
            "vision_aspect_ratio": "anyres_max_4",
        },
    ),
    "mistral3": OwnFields(**{**_PIXTRAL, "root": {"spatial_merge_size": 2}}),
    "mistral_large3": OwnFields(
        **{
            **_PIXTRAL,
            "parts": {
                "text_config": {"num_key_value_heads": 4},
                "vision_config": {"model_type": "pixtral", "image_size": 140},
            },
            "root": {"spatial_merge_size": 2},
        },
        processor={"processor_class": "PixtralProcessor", "patch_size": 14, "spatial_merge_size": 2},
    ),
    "pixtral": OwnFields(**_PIXTRAL, processor={"patch_size": 14}),
    "qwen3_vl_moe": _qwen("Qwen3VLProcessor"),
    "qwen3_5": _qwen("Qwen3VLProcessor", parts=_QWEN_LINEAR),
    "qwen3_5_moe": _qwen("Qwen3VLProcessor", parts=_QWEN_LINEAR),
    "qwen4_exp": _qwen("Qwen3VLProcessor", parts=_QWEN_LINEAR),
    "indic_ocr": _qwen("Qwen3VLProcessor", parts=_QWEN_LINEAR),
    "deepseek_vl_v2": OwnFields(
        parts={
            "text_config": {**_LATENT, "model_type": "deepseek_v2"},
            "vision_config": {"model_type": "vision", "patch_size": 14},
            "projector_config": {"input_dim": 64, "n_embed": 64, "downsample_ratio": 2, "mlp_ratio": 1},
        },
        tokens=("<\uff5c\u2581pad\u2581\uff5c>",),
        beginning="<|endoftext|>",
        processor={
            "candidate_resolutions": [[56, 56], [56, 112], [112, 56]],
            "patch_size": 14,
            "downsample_ratio": 2,
        },
    ),
    "mage_vl": _qwen(
        "Qwen3VLProcessor",
        parts={"vision_config": {"temporal_patch_size": 1, "num_attention_heads": 2}},
        preprocessor={"temporal_patch_size": 1},
    ),
    "muse_glimmer": OwnFields(
        mark_token="<|patch|>",
        tokens=("<|image|>", "<|image_start|>", "<|image_end|>", "<|video|>"),
        root={"out_hidden_size": 256},
        processor={"max_image_tokens": 16},
    ),
    "kimi_k25": OwnFields(
        mark_token="<|media_pad|>",
        tokens=("<|media_begin|>", "<|media_content|>", "<|media_end|>"),
        parts={
            "text_config": {**_LATENT, "model_type": "deepseek_v3", "topk_method": "noaux_tc"},
            "vision_config": {"model_type": "moonvit", "merge_kernel_size": [2, 2]},
        },
    ),
    "locateanything": OwnFields(
        mark_token="<IMG_CONTEXT>",
        mark="<image-1>",
        tokens=("<image-1>", "<image-2>", "<img>", "</img>"),
        parts={"text_config": {"tie_word_embeddings": True}, "vision_config": {"merge_kernel_size": [2, 2]}},
        preprocessor={"merge_kernel_size": [2, 2]},
    ),
    "granite4_vision": OwnFields(
        parts={"text_config": {"model_type": "granitemoehybrid"}, "vision_config": _SIGLIP},
        root={"image_grid_pinpoints": _PINPOINTS, "downsample_rate": "1/2"},
        preprocessor={
            "image_processor_type": "LlavaNextImageProcessor",
            "image_grid_pinpoints": _PINPOINTS,
            "size": {"shortest_edge": 56},
        },
        processor={"patch_size": 14, "vision_feature_select_strategy": "full"},
    ),
    "minimax_m3_vl": OwnFields(
        mark_token="]<]image[>[",
        tokens=("]<]video[>[", "]<]start of image[>[", "]<]end of image[>["),
        parts={
            "text_config": {"dense_intermediate_size": 96, "moe_layer_freq": [0, 1], "head_dim": 16},
            "vision_config": {"model_type": "clip_vision_model"},
        },
        preprocessor={"min_pixels": 784, "max_pixels": 12544, "min_short_side_pixel": 28},
    ),
    "llava_bunny": OwnFields(
        root={"image_token_index": -200, "auto_map": {}, "mm_hidden_size": 64},
        parts={"text_config": {"model_type": "qwen2"}, "vision_config": {**_SIGLIP, "image_size": 378}},
        model_type="llava-qwen2",
        images=1,
    ),
    "moondream2": OwnFields(
        parts={"vision_config": {"crop_size": 56, "max_crops": 2, "proj_inner_dim": 64, "proj_out_dim": 64}},
        images=1,
    ),
    "moondream3": OwnFields(
        parts={
            "text_config": {"moe_start_layer": 1, "rope_dim": 8, "num_key_value_heads": 4},
            "vision_config": {"crop_size": 56, "max_crops": 2, "proj_inner_dim": 64, "proj_out_dim": 64},
        },
        images=1,
    ),
    "paligemma": OwnFields(
        parts={
            "text_config": {"model_type": "gemma", "num_image_tokens": 16},
            "vision_config": _SIGLIP,
        },
        tokenizer={"bos_token": "<|endoftext|>", "image_token": "<image>"},
        preprocessor={"image_processor_type": "SiglipImageProcessor", "image_seq_length": 16},
        processor={"processor_class": "PaliGemmaProcessor"},
        images=1,
    ),
    "minicpmo": OwnFields(
        mark_token="<unk>",
        mark="(<image>./</image>)",
        tokens=("<image>", "</image>"),
        root={"query_num": 4, "init_audio": False, "init_tts": False, "image_size": 56, "patch_size": 14},
        preprocessor={"scale_resolution": 56, "image_feature_size": 4},
    ),
    **CROPPING,
    **HEARING,
    **MIXTURES,
    **READING,
    **WRITING,
}
"""Fields by package. `VISION_KINDS` and `HEARING_KINDS` have those of their own model types."""

NO_TINY_MODEL: Mapping[str, str] = {
    "deepseekocr_2": "its code fixes 24 layers and images of 1,024 pixels, which take minutes here",
    "ernie4_5_moe_vl": "its tokenizer is of a class of its own over SentencePiece, which nothing here makes",
    "plamo2vl": "its tokenizer.jsonl is of a format of its own, which nothing here makes",
    "prism_hadamard_qwen35": "it needs a pack of 2-bit weights; its layers are those of `qwen3_5`",
}
"""Reasons why no tiny model is made of an architecture."""

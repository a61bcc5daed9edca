"""Fields of tiny models of mlx-vlm's vision architectures that differ from the common ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class OwnFields:
    """Fields of an architecture's folder that its configuration classes do not provide.

    Args:
        mark_token: Image token named in config.json.
        mark: Text that the template writes for an image; by default `mark_token`.
        model_type: `model_type` in config.json; by default the package's name.
        root: Fields of config.json; `token:<text>` is replaced by a token's id.
        parts: Fields of its nested configurations.
        preprocessor: Fields of preprocessor_config.json.
        processor: Fields of processor_config.json.
        tokenizer: Fields of tokenizer_config.json.
        tokens: Special tokens not spelled out in the package's code.
        beginning: First token of the template, where the processor writes it before images too; or empty.
        cuts_last: True if mlx-vlm drops the last token of a prompt with images.
        scale: Scale of matrices; a larger one makes answers vary more.
        images: Largest number of images in a prompt.
    """

    mark_token: str = "<image>"
    mark: str = ""
    model_type: str = ""
    root: Mapping[str, Any] = {}
    parts: Mapping[str, Mapping[str, Any]] = {}
    preprocessor: Mapping[str, Any] = {}
    processor: Mapping[str, Any] = {}
    tokenizer: Mapping[str, Any] = {}
    tokens: tuple[str, ...] = ()
    beginning: str = ""
    cuts_last: bool = False
    scale: float = 3.0
    images: int = 2


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
    "pixtral": OwnFields(**_PIXTRAL, processor={"patch_size": 14}),
    "qwen3_vl_moe": _qwen("Qwen3VLProcessor"),
    "qwen3_5": _qwen("Qwen3VLProcessor", parts=_QWEN_LINEAR),
    "qwen3_5_moe": _qwen("Qwen3VLProcessor", parts=_QWEN_LINEAR),
    "qwen4_exp": _qwen("Qwen3VLProcessor", parts=_QWEN_LINEAR),
    "indic_ocr": _qwen("Qwen3VLProcessor", parts=_QWEN_LINEAR),
    "inkling": OwnFields(parts={"vision_config": {"patch_size": 40}}),
    "dots_ocr": OwnFields(
        mark_token="<|imgpad|>",
        mark="<|img|><|imgpad|><|endofimg|>",
        tokens=("<|img|>", "<|endofimg|>"),
        parts={"vision_config": {"temporal_patch_size": 1}},
        preprocessor={
            "image_processor_type": "Qwen2VLImageProcessor",
            "temporal_patch_size": 1,
            "size": {"shortest_edge": 784, "longest_edge": 12544},
        },
    ),
    "diffusion_gemma": OwnFields(parts={"text_config": {"top_k_experts": 2}}),
    "falcon_ocr": OwnFields(
        root={
            "dim": 64,
            "n_layers": 2,
            "n_heads": 4,
            "head_dim": 16,
            "n_kv_heads": 2,
            "ffn_dim": 96,
        },
        images=1,
    ),
    "florence2": OwnFields(
        parts={
            "text_config": {
                "d_model": 64,
                "encoder_attention_heads": 4,
                "decoder_attention_heads": 4,
                "encoder_ffn_dim": 96,
                "decoder_ffn_dim": 96,
                "encoder_layers": 1,
                "decoder_layers": 1,
            },
            "vision_config": {
                "depths": [1, 1, 1, 1],
                "dim_embed": [16, 32, 64, 64],
                "num_heads": [2, 2, 2, 2],
                "num_groups": [2, 2, 2, 2],
                "patch_size": [7, 3, 3, 3],
                "window_size": 4,
                "image_size": [64, 64],
            },
        },
        images=1,
    ),
    "glm5_next": OwnFields(
        **{**_GLM, "parts": {"text_config": {"num_key_value_heads": 4, "head_dim": 0, "layer_types": None}}}
    ),
    "gemma4_unified": OwnFields(
        mark_token="<|image|>",
        parts={
            "text_config": {
                "num_hidden_layers": 4,
                "global_head_dim": 16,
                "num_global_key_value_heads": 2,
                "attention_k_eq_v": False,
                "sliding_window": 64,
                "sliding_window_pattern": 2,
                "layer_types": None,
                "rope_parameters": None,
            },
            "vision_config": {
                "patch_size": 14,
                "pooling_kernel_size": 2,
                "model_patch_size": 28,
                "mm_embed_dim": 64,
                "mm_posemb_size": 64,
                "num_soft_tokens": 16,
                "output_proj_dims": 64,
            },
        },
        tokenizer={
            "image_token": "<|image|>",
            "boi_token": "<|image>",
            "eoi_token": "<image|>",
            "audio_token": "<|audio|>",
            "boa_token": "<|audio>",
            "eoa_token": "<audio|>",
        },
        tokens=("<|image>", "<image|>", "<|audio|>", "<|audio>", "<audio|>", "<|video|>"),
        processor={
            "image_processor": {
                "patch_size": 14,
                "pooling_kernel_size": 2,
                "model_patch_size": 28,
                "max_soft_tokens": 16,
            }
        },
    ),
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
    "jina_vlm": OwnFields(mark_token="<|image|>"),
    "mage_vl": _qwen(
        "Qwen3VLProcessor",
        parts={"vision_config": {"temporal_patch_size": 1, "num_attention_heads": 2}},
        preprocessor={"temporal_patch_size": 1},
    ),
    "zaya1_vl": OwnFields(
        root=_QWEN_IDS,
        mark="<|vision_start|><image><|vision_end|>",
        parts={"text_config": {"ffn_hidden_size": 128, "zaya_mlp_expansion": 16, "num_query_groups": 2}},
        tokens=_QWEN_TOKENS,
        preprocessor={"image_processor_type": "Qwen2VLImageProcessor"},
    ),
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
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
            }
        },
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
    "paddleocr_vl": OwnFields(
        mark_token="<|IMAGE_PLACEHOLDER|>",
        mark="<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
        tokens=("<|IMAGE_START|>", "<|IMAGE_END|>"),
        root={"vision_start_token_id": "token:<|IMAGE_START|>", "vision_end_token_id": "token:<|IMAGE_END|>"},
        parts={
            "text_config": {
                "rope_scaling": {"type": "default", "rope_type": "default", "mrope_section": [2, 3, 3]},
                "rope_parameters": None,
            }
        },
        preprocessor={"temporal_patch_size": 1},
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
    "molmo2": OwnFields(
        mark_token="<im_patch>",
        mark="<|image|>",
        tokens=("<|image|>", "<im_start>", "<low_res_im_start>", "<im_end>", "<im_col>", "<im_low>"),
        preprocessor={"size": {"height": 56, "width": 56}, "max_crops": 2, "overlap_margins": [1, 1]},
    ),
    "multi_modality": OwnFields(
        parts={
            "text_config": {"model_type": "llama"},
            "vision_config": {"model_type": "vision", "cls": "CLIPVisionTower", "params": {}},
            "projector_config": {
                "cls": "MlpProjector",
                "model_type": "projector",
                "params": {"projector_type": "mlp_gelu", "depth": 2, "input_dim": 64, "n_embed": 64},
            },
            "aligner_config": {},
        },
        root={"num_image_tokens": 16},
        processor={"num_image_tokens": 16},
        images=1,
    ),
    "llava_bunny": OwnFields(
        root={"image_token_index": -200, "auto_map": {}, "mm_hidden_size": 64},
        parts={"text_config": {"model_type": "qwen2"}, "vision_config": {**_SIGLIP, "image_size": 378}},
        model_type="llava-qwen2",
        images=1,
    ),
    "phi3_v": OwnFields(
        mark_token="<|image|>",
        mark="<|image_1|>",
        tokens=("<|image_1|>",),
        parts={"vision_config": {"image_size": 336, "image_dim_out": 64}},
        preprocessor={"num_crops": 1, "num_img_tokens": 144},
    ),
    "phi4_siglip": OwnFields(model_type="phi4-siglip", images=1),
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
    "mllama": OwnFields(
        mark_token="<|image|>",
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
        images=1,
    ),
    "minicpmo": OwnFields(
        mark_token="<unk>",
        mark="(<image>./</image>)",
        tokens=("<image>", "</image>"),
        root={"query_num": 4, "init_audio": False, "init_tts": False, "image_size": 56, "patch_size": 14},
        preprocessor={"scale_resolution": 56, "image_feature_size": 4},
    ),
    "hunyuan_vl": OwnFields(
        parts={
            "text_config": {
                "head_dim": 16,
                "attention_head_dim": 16,
                "rope_scaling": {
                    "type": "xdrope",
                    "alpha": 1000.0,
                    "factor": 1.0,
                    "xdrope_section": [2, 2, 2, 2],
                },
            },
            "vision_config": {"max_image_size": 112},
        },
    ),
    "mimo_v2": _qwen(
        "Qwen2_5_VLProcessor",
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
}
"""Fields by package. `VISION_KINDS` and `HEARING_KINDS` have those of their own model types."""

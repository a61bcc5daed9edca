"""Files of the folders of tiny vision models, by model type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

_QWEN = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_SMOL_GRID = tuple(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))
_SMOL = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *_SMOL_GRID)
_GEMMA = ("<start_of_image>", "<end_of_image>", "<image_soft_token>")

_TEXT: Mapping[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
_MROPE = {"type": "mrope", "mrope_section": [4, 6, 6]}

_QWEN_TOWER: Mapping[str, Any] = {
    "depth": 2,
    "hidden_size": 64,
    "num_heads": 2,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "in_channels": 3,
    "in_chans": 3,
}
_SIGLIP: Mapping[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_channels": 3,
    "layer_norm_eps": 1e-6,
}
_NORMALIZED: Mapping[str, Any] = {
    "do_resize": True,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "do_convert_rgb": True,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}


@attrs.frozen
class VisionKind:
    """Files of the folder of one model type.

    Args:
        marks: Special tokens that the tokenizer has beside those of the text models.
        mark: Placeholder of an image in the template.
        config: config.json, without token ids.
        token_fields: Fields of config.json for the ids of special tokens.
        preprocessor: preprocessor_config.json.
        processor: processor_config.json.
        tokenizer: Further fields of tokenizer_config.json.
        heard: Placeholder of a sound in the template.
        wide: Overrides by file that make an image of 1,200 pixels a side take 1,000 or more tokens; empty if
            it does so anyway.
    """

    marks: tuple[str, ...]
    mark: str
    config: Mapping[str, Any]
    token_fields: Mapping[str, str]
    preprocessor: Mapping[str, Any]
    processor: Mapping[str, Any]
    tokenizer: Mapping[str, Any] = {}
    wide: Mapping[str, Mapping[str, Any]] = {}
    heard: str = ""


def _qwen(kind: str, processor: str, patch: int, config: Mapping[str, Any]) -> VisionKind:
    pixels = (patch * 2) ** 2
    return VisionKind(
        marks=_QWEN,
        mark="<|vision_start|><|image_pad|><|vision_end|>",
        config={"model_type": kind, "tie_word_embeddings": False, **config},
        token_fields={
            "image_token_id": "<|image_pad|>",
            "video_token_id": "<|video_pad|>",
            "vision_start_token_id": "<|vision_start|>",
            "vision_end_token_id": "<|vision_end|>",
        },
        preprocessor={
            **_NORMALIZED,
            "image_processor_type": "Qwen2VLImageProcessor",
            "patch_size": patch,
            "merge_size": 2,
            "temporal_patch_size": 2,
            "min_pixels": pixels,
            "max_pixels": pixels * 2048,
            "size": {"shortest_edge": pixels, "longest_edge": pixels * 2048},
        },
        processor={"processor_class": processor},
    )


def _siglip_tower(model_type: str, **sizes: int) -> dict[str, Any]:
    return {"vision_config": {**_SIGLIP, "model_type": model_type, **sizes}}


_GEMMA_SIZES = {"height": 64, "width": 64}
_GEMMA_WIDE_SIZES = {"height": 256, "width": 256}
_GEMMA_TEXT: Mapping[str, Any] = {
    **_TEXT,
    "model_type": "gemma3_text",
    "sliding_window": 64,
    "sliding_window_pattern": 2,
    "query_pre_attn_scalar": 32,
    "rope_local_base_freq": 10000.0,
}

VISION_KINDS: Mapping[str, VisionKind] = {
    "qwen2_vl": _qwen(
        "qwen2_vl",
        "Qwen2VLProcessor",
        14,
        {
            **_TEXT,
            "rope_scaling": _MROPE,
            "vision_config": {
                **_QWEN_TOWER,
                "model_type": "qwen2_vl",
                "embed_dim": 64,
                "hidden_size": 128,
                "mlp_ratio": 2,
                "patch_size": 14,
                "spatial_patch_size": 14,
            },
        },
    ),
    "qwen2_5_vl": _qwen(
        "qwen2_5_vl",
        "Qwen2_5_VLProcessor",
        14,
        {
            **_TEXT,
            "rope_scaling": _MROPE,
            "vision_config": {
                **_QWEN_TOWER,
                "model_type": "qwen2_5_vl",
                "intermediate_size": 128,
                "out_hidden_size": 128,
                "patch_size": 14,
                "spatial_patch_size": 14,
                "window_size": 112,
                "fullatt_block_indexes": [1],
                "tokens_per_second": 2,
            },
        },
    ),
    "qwen3_vl": _qwen(
        "qwen3_vl",
        "Qwen3VLProcessor",
        16,
        {
            "text_config": {
                **_TEXT,
                "model_type": "qwen3_vl_text",
                "rope_scaling": {**_MROPE, "mrope_interleaved": True},
            },
            "vision_config": {
                **_QWEN_TOWER,
                "model_type": "qwen3_vl",
                "intermediate_size": 128,
                "out_hidden_size": 128,
                "patch_size": 16,
                "spatial_patch_size": 16,
                "num_position_embeddings": 64,
                "deepstack_visual_indexes": [0, 1],
            },
        },
    ),
    "smolvlm": VisionKind(
        marks=_SMOL,
        mark="<image>",
        config={
            "model_type": "smolvlm",
            "scale_factor": 2,
            "tie_word_embeddings": False,
            "text_config": {**_TEXT, "model_type": "llama"},
            **_siglip_tower("smolvlm_vision", patch_size=16, image_size=64),
        },
        token_fields={"image_token_id": "<image>"},
        preprocessor={
            **_NORMALIZED,
            "image_processor_type": "SmolVLMImageProcessor",
            "size": {"longest_edge": 128},
            "max_image_size": {"longest_edge": 64},
            "do_image_splitting": True,
            "do_pad": True,
            "resample": 1,
        },
        processor={"processor_class": "SmolVLMProcessor", "image_seq_len": 4},
        tokenizer={
            "image_token": "<image>",
            "fake_image_token": "<fake_token_around_image>",
            "global_image_token": "<global-img>",
            "extra_special_tokens": {
                "image_token": "<image>",
                "fake_image_token": "<fake_token_around_image>",
                "global_image_token": "<global-img>",
            },
        },
        wide={
            "config": _siglip_tower("smolvlm_vision", patch_size=8, image_size=96),
            "preprocessor": {"size": {"longest_edge": 576}, "max_image_size": {"longest_edge": 96}},
            "processor": {"image_seq_len": 36},
        },
    ),
    "gemma3": VisionKind(
        marks=_GEMMA,
        mark="<start_of_image>",
        config={
            "model_type": "gemma3",
            "mm_tokens_per_image": 16,
            "text_config": {**_GEMMA_TEXT, "mm_tokens_per_image": 16},
            **_siglip_tower("siglip_vision_model", patch_size=8, image_size=64),
        },
        token_fields={
            "image_token_index": "<image_soft_token>",
            "boi_token_index": "<start_of_image>",
            "eoi_token_index": "<end_of_image>",
        },
        preprocessor={
            **_NORMALIZED,
            "image_processor_type": "Gemma3ImageProcessor",
            "size": _GEMMA_SIZES,
            "resample": 2,
            "image_seq_length": 16,
        },
        processor={"processor_class": "Gemma3Processor", "image_seq_length": 16},
        tokenizer={
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
            "image_token": "<image_soft_token>",
            "extra_special_tokens": {
                "boi_token": "<start_of_image>",
                "eoi_token": "<end_of_image>",
                "image_token": "<image_soft_token>",
            },
        },
        wide={
            "config": {
                "mm_tokens_per_image": 1024,
                "text_config": {**_GEMMA_TEXT, "mm_tokens_per_image": 1024},
                **_siglip_tower("siglip_vision_model", patch_size=8, image_size=256),
            },
            "preprocessor": {"size": _GEMMA_WIDE_SIZES, "image_seq_length": 1024},
            "processor": {"image_seq_length": 1024},
        },
    ),
}
"""Files by `model_type`."""

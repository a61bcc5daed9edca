"""Files of the folders of tiny models that take images and audio, by model type."""

from __future__ import annotations

from collections.abc import Mapping

from greenroom.tests.support.models.tiny_vision_kinds import VisionKind

_NAMES = {
    "boi_token": "<|image>",
    "eoi_token": "<image|>",
    "image_token": "<|image|>",
    "boa_token": "<|audio>",
    "eoa_token": "<audio|>",
    "audio_token": "<|audio|>",
}
_ATTENTION = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "global_head_dim": 32}

HEARING_KINDS: Mapping[str, VisionKind] = {
    "gemma4": VisionKind(
        marks=(*_NAMES.values(), "<|video|>"),
        mark="<|image|>",
        heard="<|audio|>",
        config={
            "model_type": "gemma4",
            "text_config": {
                "model_type": "gemma4_text",
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 4,
                "num_kv_shared_layers": 0,
                "hidden_size_per_layer_input": 0,
                "use_double_wide_mlp": False,
                "sliding_window": 64,
                "sliding_window_pattern": 2,
                "max_position_embeddings": 32768,
                **_ATTENTION,
            },
            "vision_config": {
                "model_type": "gemma4_vision",
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 2,
                "patch_size": 16,
                "pooling_kernel_size": 3,
                "position_embedding_size": 256,
                "default_output_length": 70,
                **_ATTENTION,
            },
            "audio_config": {
                "hidden_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "subsampling_conv_channels": [8, 4],
                "output_proj_dims": 64,
            },
        },
        token_fields={
            "image_token_id": "<|image|>",
            "audio_token_id": "<|audio|>",
            "video_token_id": "<|video|>",
            "boi_token_id": "<|image>",
            "eoi_token_id": "<image|>",
            "boa_token_id": "<|audio>",
            "eoa_token_id": "<audio|>",
        },
        preprocessor={},
        processor={
            "processor_class": "Gemma4Processor",
            "image_processor": {"patch_size": 16, "pooling_kernel_size": 3, "max_soft_tokens": 70},
            "audio_seq_length": 100,
            "audio_ms_per_token": 40,
        },
        tokenizer={**_NAMES, "extra_special_tokens": _NAMES},
    ),
}
"""Files by `model_type`."""

"""config.json of a tiny model of every embedding architecture in mlx-vlm and mlx-embeddings.

`AS_ON_THE_HUB` lists the architectures that `tiny_encoders` makes as on the hub; `CONFIGS` has the fields of
the others. An architecture refused by its name needs no weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AS_ON_THE_HUB: Mapping[str, str] = {
    "bert": "bert",
    "gemma3_embedding": "gemma3_text",
    "gemma3_text": "gemma3_text",
    "modernbert": "modernbert",
    "qwen3": "qwen3",
    "qwen3_embedding": "qwen3",
    "xlm_roberta": "xlm-roberta",
}
"""Library packages, and the kinds of tiny encoders that they can load."""

_DECODER: Mapping[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "tie_word_embeddings": True,
}
_LFM2: Mapping[str, Any] = {
    **_DECODER,
    "model_type": "lfm2",
    "architectures": ["Lfm2Model"],
    "norm_eps": 1e-5,
    "conv_bias": False,
    "conv_L_cache": 3,
    "block_dim": 64,
    "block_ff_dim": 96,
    "block_multiple_of": 16,
    "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": False,
    "layer_types": ["conv", "full_attention"],
}
_SIGLIP: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 16,
}
_QWEN3_VL: Mapping[str, Any] = {
    "text_config": {
        **_DECODER,
        "model_type": "qwen3_vl_text",
        "rope_scaling": {"type": "default", "mrope_section": [6, 5, 5]},
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 64,
        "out_hidden_size": 64,
        "num_heads": 2,
        "patch_size": 16,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [],
    },
    "image_token_id": 8,
    "video_token_id": 9,
    "vision_start_token_id": 10,
    "vision_end_token_id": 11,
}

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "colidefics3": {"model_type": "colidefics3", "architectures": ["ColIdefics3"]},
    "colqwen2_5": {"model_type": "colqwen2_5", "architectures": ["ColQwen2_5"]},
    "embedding_gemma2": {
        "model_type": "embedding_gemma2",
        "text_config": {
            **_DECODER,
            "num_key_value_heads": 2,
            "hidden_size_per_layer_input": 16,
            "embedding_dim": 96,
            "sliding_window": 32,
            "layer_types": ["sliding_attention", "full_attention"],
            "per_layer_config": {"01": {"head_dim": 64, "num_key_value_heads": 1}},
        },
        "vision_config": None,  # without this, mlx-vlm makes a large tower
        "audio_config": None,
    },
    "lfm2": {"model_type": "lfm2_colbert"},
    "lfm2_colbert": {"model_type": "lfm2_colbert"},
    "lfm2_embedding": _LFM2,
    "llama_bidirec": {
        **_DECODER,
        "model_type": "llama_bidirec",
        "architectures": ["LlamaBidirectionalModel"],
    },
    "llama_nemotron_vl": {
        "model_type": "llama_nemotron_vl",
        "architectures": ["LlamaNemotronVLModel"],
        "force_image_size": 32,
        "llm_config": dict(_DECODER),
        "vision_config": dict(_SIGLIP),
    },
    "llama_nemotron_vl_embedding": {
        "model_type": "llama_nemotron_vl_embedding",
        "force_image_size": 32,
        "text_config": {**_DECODER, "model_type": "llama"},
        "vision_config": dict(_SIGLIP),
    },
    "ministral3_embedding": {
        **_DECODER,
        "model_type": "ministral3",
        "architectures": ["Ministral3Model"],
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 16,
        },
    },
    "qwen3_vl": {**_QWEN3_VL, "model_type": "qwen3_vl", "architectures": ["Qwen3VLModel"]},
    "qwen3_vl_embedding": {**_QWEN3_VL, "model_type": "qwen3_vl_embedding"},
    "siglip": {"model_type": "siglip", "text_config": dict(_SIGLIP), "vision_config": dict(_SIGLIP)},
}
"""Fields by package. mlx-embeddings' `lfm2` is a late-interaction model: it keeps a vector for each token."""

REFUSED_BY_NAME = frozenset({"colidefics3", "colqwen2_5", "lfm2", "lfm2_colbert", "siglip"})

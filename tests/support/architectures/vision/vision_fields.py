"""Common fields of config.json and the processor files of tiny vision models, by field name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenroom.tests.support.architectures.architecture_fields import COMMON

Fields = Mapping[str, Any]

SIDE = 56
"""Side in pixels of the square image that fixed-size vision towers take."""
PATCH = 14

TEXT: Fields = {
    **COMMON,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layers": 2,
    "sliding_window": 4096,
    "rope_scaling": None,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "partial_rotary_factor": 1.0,
    "layer_types": ["full_attention"] * 2,
    "tie_word_embeddings": False,
}
"""Fields of the language model."""

TOWER: Fields = {
    "hidden_size": 64,
    "embed_dim": 64,
    "width": 64,
    "dim": 64,
    "out_hidden_size": 64,
    "text_hidden_size": 64,
    "vision_output_dim": 64,
    "projection_dim": 64,
    "intermediate_size": 96,
    "mlp_ratio": 2.0,
    "num_hidden_layers": 2,
    "depth": 2,
    "layers": 2,
    "num_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_heads": 4,
    "heads": 4,
    "head_dim": 16,
    "num_channels": 3,
    "in_channels": 3,
    "in_chans": 3,
    "image_size": SIDE,
    "patch_size": PATCH,
    "spatial_patch_size": PATCH,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "layer_norm_eps": 1e-6,
    "rms_norm_eps": 1e-6,
    "norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "window_size": 56,
    "fullatt_block_indexes": [1],
    "deepstack_visual_indexes": [0],
    "num_position_embeddings": 64,
    "init_pos_emb_height": 8,
    "init_pos_emb_width": 8,
    "initializer_range": 0.02,
    "projector_dropout": 0.0,
}
"""Fields of the vision tower."""

ROOT: Fields = {
    "hidden_size": 64,
    "mm_hidden_size": 64,
    "projector_hidden_size": 64,
    "alignment_intermediate_size": 128,
    "ignore_index": -100,
}
"""Fields at the top level of config.json; some architectures read the language model's fields there."""

PREPROCESSOR: Fields = {
    "do_resize": True,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "do_convert_rgb": True,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
    "size": {"height": SIDE, "width": SIDE},
    "crop_size": {"height": SIDE, "width": SIDE},
    "patch_size": PATCH,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "min_pixels": (2 * PATCH) ** 2,
    "max_pixels": (8 * PATCH) ** 2,
    "resample": 3,
}
"""Fields of preprocessor_config.json."""

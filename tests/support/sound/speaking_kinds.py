"""Files of the folders of tiny speech models, by mlx-audio's name of the architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenroom.tests.support.sound.tiny_sound_models import Config, SoundKind

_BACKBONE: Config = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}

_OUTETTS_TOKENS = (
    *("<|voice_characteristic_start|>", "<|voice_characteristic_end|>", "<|code|>", "<|features|>"),
    *("<|global_features_start|>", "<|global_features_end|>", "<|word_start|>", "<|word_end|>"),
    *("<|text_start|>", "<|text_end|>", "<|audio_start|>", "<|audio_end|>"),
    *(f"<|c{book}_{code}|>" for book in (1, 2) for code in range(1025)),
)


def _outetts(ids: Mapping[str, int]) -> Config:
    return {**_BACKBONE, "model_type": "llama", "vocab_size": ids[""]}


def _soprano(ids: Mapping[str, int]) -> Config:
    from mlx_audio.tts.models.soprano.soprano import DecoderConfig

    # Eight layers, which no configuration changes, take a minute. This is for the rest of the process.
    constructor: Any = DecoderConfig.__init__
    constructor.__defaults__ = (1, *constructor.__defaults__[1:])
    return {**_BACKBONE, "model_type": "qwen3", "vocab_size": ids[""]}


def _dia(_: Mapping[str, int]) -> Config:
    return {
        "model_type": "dia",
        "version": "0.1",
        "model": {
            "encoder": {"n_layer": 1, "n_embd": 64, "n_hidden": 96, "n_head": 4, "head_dim": 16},
            "decoder": {
                "n_layer": 1,
                "n_embd": 64,
                "n_hidden": 96,
                "gqa_query_heads": 4,
                "kv_heads": 2,
                "gqa_head_dim": 16,
                "cross_query_heads": 4,
                "cross_head_dim": 16,
            },
            "src_vocab_size": 256,
            "tgt_vocab_size": 1028,
        },
        "training": {"dtype": "float32"},
        "data": {"text_length": 128, "audio_length": 128, "channels": 9},
    }


def _voxcpm(ids: Mapping[str, int]) -> Config:
    factors = [1.0] * 8
    return {
        "model_type": "voxcpm",
        "lm_config": {
            "hidden_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 96,
            "vocab_size": ids[""],
            "rope_scaling": {"type": "longrope", "long_factor": factors, "short_factor": factors},
        },
        "encoder_config": {"hidden_dim": 64, "ffn_dim": 96, "num_heads": 4, "num_layers": 1},
        "dit_config": {"hidden_dim": 64, "ffn_dim": 96, "num_heads": 4, "num_layers": 1},
        "audio_vae_config": {"encoder_dim": 4, "latent_dim": 8, "decoder_dim": 64},
        "patch_size": 2,
        "feat_dim": 8,
        "scalar_quantization_latent_dim": 16,
        "residual_lm_num_layers": 1,
    }


SPEAKING_KINDS: Mapping[str, SoundKind] = {
    "dia": SoundKind(_dia, None),
    "outetts": SoundKind(_outetts, _OUTETTS_TOKENS),
    "soprano": SoundKind(_soprano, ("[START]", "[STOP]", "[TEXT]")),
    "voxcpm": SoundKind(_voxcpm),
}

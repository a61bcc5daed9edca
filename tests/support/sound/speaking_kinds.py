"""Files of the folders of tiny speech models, by mlx-audio's name of the architecture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from greenroom.tests.support.sound.tiny_sound_models import Config, SoundKind, random_weights

_QWEN_SPEECH = ("<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")
_TEXT = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
}


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


def _qwen3_tts(ids: Mapping[str, int]) -> Config:
    predictor = {**_TEXT, "vocab_size": 2048, "num_code_groups": 4}
    return {
        "model_type": "qwen3_tts",
        "tts_model_type": "base",
        "talker_config": {
            **_TEXT,
            "vocab_size": 3072,
            "num_code_groups": 4,
            "text_hidden_size": 64,
            "text_vocab_size": ids[""],
            "rope_scaling": {"interleaved": True, "mrope_section": [4, 2, 2], "rope_type": "default"},
            "code_predictor_config": predictor,
        },
        "speaker_encoder_config": {
            "enc_dim": 64,
            "enc_channels": [16, 16, 16, 16, 48],
            "enc_attention_channels": 8,
            "enc_res2net_scale": 2,
            "enc_se_channels": 8,
        },
        "im_start_token_id": ids["<|im_start|>"],
        "im_end_token_id": ids["<|im_end|>"],
        "tts_pad_token_id": ids["<tts_pad>"],
        "tts_bos_token_id": ids["<tts_text_bos>"],
        "tts_eos_token_id": ids["<tts_text_eod>"],
    }


def _qwen_codec(folder: Path) -> None:
    import mlx.core as mx
    from mlx_audio.tts.models.qwen3_tts.config import (
        Qwen3TTSTokenizerConfig,
        Qwen3TTSTokenizerDecoderConfig,
    )
    from mlx_audio.tts.models.qwen3_tts.speech_tokenizer import Qwen3TTSSpeechTokenizer

    decoder = {
        "latent_dim": 32,
        "codebook_dim": 16,
        "codebook_size": 2048,
        "decoder_dim": 32,
        "hidden_size": 32,
        "intermediate_size": 48,
        "head_dim": 8,
        "num_attention_heads": 4,
        "num_hidden_layers": 1,
        "num_key_value_heads": 4,
        "num_quantizers": 4,
        "semantic_codebook_size": 2048,
        "vector_quantization_hidden_dimension": 16,
    }
    inner = folder / "speech_tokenizer"
    inner.mkdir()
    (inner / "config.json").write_text(json.dumps({"decoder_config": decoder}))
    mx.random.seed(1)
    codec = Qwen3TTSSpeechTokenizer(
        Qwen3TTSTokenizerConfig(decoder_config=Qwen3TTSTokenizerDecoderConfig(**decoder))
    )
    mx.save_safetensors(str(inner / "model.safetensors"), random_weights(codec))
    (folder / "generation_config.json").write_text(json.dumps({"max_new_tokens": 6}))


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
    "qwen3_tts": SoundKind(_qwen3_tts, _QWEN_SPEECH, _qwen_codec),
    "voxcpm": SoundKind(_voxcpm),
}

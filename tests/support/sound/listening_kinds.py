"""Files of the folders of tiny transcription models, by mlx-audio's name of the architecture."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path

from greenroom.tests.support.models.tiny_vision_models import chat_template
from greenroom.tests.support.sound.conformer_kinds import CONFORMER_KINDS
from greenroom.tests.support.sound.tiny_sound_models import Config, SoundKind

_AUDIO = ("<|audio_start|>", "<|audio_pad|>", "<|audio_end|>", "<asr_text>")
_SPEECH = ("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>")
_TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}
_HEARD = {
    "num_mel_bins": 80,
    "encoder_layers": 1,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "d_model": 64,
}


def _whisper_features(folder: Path, bins: int = 80) -> None:
    config = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": bins, "n_fft": 400}
    (folder / "preprocessor_config.json").write_text(json.dumps({**config, "sampling_rate": 16_000}))


def _qwen3_asr(ids: Mapping[str, int]) -> Config:
    heard = {**_HEARD, "max_source_positions": 1500, "n_window": 50, "output_dim": 64}
    heard |= {"n_window_infer": 400, "conv_chunksize": 500, "downsample_hidden_size": 16}
    return {
        "model_type": "qwen3_asr",
        "audio_config": heard,
        "text_config": {**_TEXT, "vocab_size": ids[""], "tie_word_embeddings": False},
        "audio_token_id": ids["<|audio_pad|>"],
        "audio_start_token_id": ids["<|audio_start|>"],
        "audio_end_token_id": ids["<|audio_end|>"],
        "support_languages": ["English", "French"],
    }


def _vibevoice(ids: Mapping[str, int]) -> Config:
    tokenizer = {
        "encoder_n_filters": 4,
        "encoder_ratios": [8, 5, 5, 4, 2, 2],
        "encoder_depths": "1-1-1-1-1-1-1",
    }
    text = {name: value for name, value in _TEXT.items() if name != "head_dim"}
    return {
        "model_type": "vibevoice",
        "architectures": ["VibeVoiceForASRTraining"],
        "acoustic_tokenizer_config": {**tokenizer, "vae_dim": 8},
        "semantic_tokenizer_config": {**tokenizer, "vae_dim": 16},
        "acoustic_vae_dim": 8,
        "semantic_vae_dim": 16,
        "decoder_config": {**text, "vocab_size": ids[""], "layer_types": ["full_attention"]},
    }


def _voxtral_realtime(_: Mapping[str, int]) -> Config:
    return {
        "model_type": "voxtral_realtime",
        "encoder_args": {
            "dim": 64,
            "n_layers": 1,
            "n_heads": 2,
            "head_dim": 32,
            "hidden_dim": 128,
            "n_kv_heads": 2,
        },
        "decoder": {
            "dim": 3072,  # hard-coded in the encoder
            "n_layers": 1,
            "n_heads": 2,
            "n_kv_heads": 1,
            "head_dim": 32,
            "hidden_dim": 128,
            "vocab_size": 1256,
        },
        "vocab_size": 1256,
        "hidden_size": 3072,
    }


def _tekken(folder: Path) -> None:
    vocabulary = [
        {"rank": byte, "token_bytes": base64.b64encode(bytes([byte])).decode(), "token_str": None}
        for byte in range(256)
    ]
    (folder / "tekken.json").write_text(
        json.dumps(
            {"vocab": vocabulary, "config": {"default_num_special_tokens": 1000}, "special_tokens": []}
        )
    )


def _glmasr(ids: Mapping[str, int]) -> Config:
    text = {name: value for name, value in _TEXT.items() if name != "head_dim"}
    return {
        "model_type": "glmasr",
        "whisper_config": {**_HEARD, "num_mel_bins": 128, "max_source_positions": 1500},
        "lm_config": {**text, "vocab_size": ids[""], "eos_token_id": [ids["<|im_end|>"]]},
        "merge_factor": 4,
        "use_rope": True,
    }


def _sensevoice(_: Mapping[str, int]) -> Config:
    return {
        "model_type": "sensevoice",
        "vocab_size": 64,
        "input_size": 560,
        "encoder_conf": {
            "output_size": 64,
            "attention_heads": 2,
            "linear_units": 128,
            "num_blocks": 2,
            "tp_blocks": 1,
            "kernel_size": 11,
        },
        "frontend_conf": {"fs": 16_000, "n_mels": 80, "lfr_m": 7, "lfr_n": 6},
    }


def _token_list(folder: Path) -> None:
    tokens = ["<blank>", *(f"\N{LOWER ONE EIGHTH BLOCK}{chr(97 + index % 26)}{index}" for index in range(63))]
    (folder / "tokens.json").write_text(json.dumps(tokens))


def _mms(_: Mapping[str, int]) -> Config:
    return {
        "model_type": "mms",
        "vocab_size": 32,
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "conv_dim": [16, 16, 16, 16, 16, 16, 16],
        "conv_stride": [5, 2, 2, 2, 2, 2, 2],
        "conv_kernel": [10, 3, 3, 3, 3, 2, 2],
        "num_feat_extract_layers": 7,
        "num_conv_pos_embeddings": 8,
        "num_conv_pos_embedding_groups": 4,
    }


def _letters(folder: Path) -> None:
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *(chr(97 + index) for index in range(26)), "'"]
    (folder / "vocab.json").write_text(json.dumps({letter: index for index, letter in enumerate(letters)}))


def _moonshine(ids: Mapping[str, int]) -> Config:
    return {
        "model_type": "moonshine",
        "vocab_size": ids[""],
        "hidden_size": 32,
        "intermediate_size": 64,
        "encoder_num_hidden_layers": 1,
        "decoder_num_hidden_layers": 1,
        "encoder_num_attention_heads": 2,
        "decoder_num_attention_heads": 2,
    }


_INNER = "Qwen3-0.6B"


def _hearing_template(folder: Path) -> None:
    _whisper_features(folder)
    path = folder / "tokenizer_config.json"
    template = chat_template("", "<|audio_start|><|audio_pad|><|audio_end|>")
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": template}))


def _move_tokenizer(folder: Path) -> None:
    (folder / _INNER).mkdir()
    for path in folder.glob("tokenizer*.json"):
        path.rename(folder / _INNER / path.name)


def _fun_asr(ids: Mapping[str, int]) -> Config:
    return {
        "model_type": "fun_asr_nano",
        "qwen_tokenizer_path": _INNER,
        "audio_encoder_conf": {
            "output_size": 64,
            "attention_heads": 4,
            "linear_units": 96,
            "num_blocks": 2,
            "tp_blocks": 1,
        },
        "audio_adaptor_conf": {
            "ffn_dim": 96,
            "llm_dim": 64,
            "encoder_dim": 64,
            "n_layer": 1,
            "attention_heads": 4,
        },
        "text_config": {**_TEXT, "vocab_size": ids[""], "tie_word_embeddings": False},
    }


def _higgs(ids: Mapping[str, int]) -> Config:
    return {
        "model_type": "higgs_audio_3",
        "audio_encoder_config": {**_HEARD, "num_mel_bins": 128},
        "text_config": {**_TEXT, "vocab_size": ids[""], "tie_word_embeddings": False},
        "audio_in_token_idx": ids["<|AUDIO|>"],
        "audio_out_token_idx": ids["<|AUDIO_OUT|>"],
        "audio_bos_token_id": ids["<|audio_bos|>"],
        "audio_eos_token_id": ids["<|audio_eos|>"],
        "pad_token_id": 0,
        "vad_cut": False,  # otherwise it downloads a model that finds speech
    }


def _moss(ids: Mapping[str, int]) -> Config:
    return {
        "model_type": "moss_transcribe_diarize",
        "audio_config": _HEARD,
        "text_config": {**_TEXT, "vocab_size": ids[""]},
        "audio_token_id": ids["<|audio_pad|>"],
        "tie_word_embeddings": True,
    }


def _mega(ids: Mapping[str, int]) -> Config:
    text = {**_TEXT, "vocab_size": ids[""], "tie_word_embeddings": True}
    return {**_qwen3_asr(ids), "model_type": "mega_asr", "text_config": text}


LISTENING_KINDS: Mapping[str, SoundKind] = {
    **CONFORMER_KINDS,
    "fun_asr_nano": SoundKind(_fun_asr, files=_move_tokenizer),
    "glmasr": SoundKind(_glmasr, ("<|begin_of_audio|>", "<|end_of_audio|>", "<|user|>", "<|assistant|>")),
    "higgs_audio_3": SoundKind(_higgs, ("<|AUDIO|>", "<|AUDIO_OUT|>", "<|audio_bos|>", "<|audio_eos|>")),
    "mega_asr": SoundKind(_mega, _AUDIO, _whisper_features),
    "mms": SoundKind(_mms, None, _letters),
    "moonshine": SoundKind(_moonshine),
    "moss_transcribe_diarize": SoundKind(_moss, _AUDIO, _hearing_template),
    "qwen3_asr": SoundKind(_qwen3_asr, _AUDIO, _whisper_features),
    "sensevoice": SoundKind(_sensevoice, None, _token_list),
    "vibevoice_asr": SoundKind(_vibevoice, _SPEECH),
    "voxtral_realtime": SoundKind(_voxtral_realtime, None, _tekken),
}

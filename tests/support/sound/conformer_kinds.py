"""Files of the folders of tiny transcription models with a conformer as their encoder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from greenroom.tests.support.sound.sentence_pieces import piece_count, sentence_pieces
from greenroom.tests.support.sound.tiny_sound_models import Config, SoundKind

_PIECES = [f"\N{LOWER ONE EIGHTH BLOCK}{chr(97 + index % 26)}{index}" for index in range(64)]
_CANARY = (
    "<|startofcontext|>",
    "<|startoftranscript|>",
    "<|emo:undefined|>",
    "<|endoftext|>",
    "<|en|>",
    "<|pnc|>",
    "<|nopnc|>",
    "<|noitn|>",
    "<|notimestamp|>",
    "<|nodiarize|>",
)
_FAST_CONFORMER = {
    "feat_in": 80,
    "n_layers": 1,
    "d_model": 64,
    "n_heads": 4,
    "ff_expansion_factor": 2,
    "subsampling_factor": 8,
    "self_attention_model": "rel_pos",
    "subsampling": "dw_striding",
    "conv_kernel_size": 9,
    "subsampling_conv_channels": 16,
    "pos_emb_max_len": 5000,
}
_FEATURES = {
    "sample_rate": 16_000,
    "normalize": "per_feature",
    "window_size": 0.025,
    "window_stride": 0.01,
    "window": "hann",
    "features": 80,
    "n_fft": 512,
    "dither": 0.0,
    "pad_to": 0,
}


def _parakeet(_: Mapping[str, int]) -> Config:
    durations = [0, 1, 2, 3, 4]
    return {
        "target": "nemo.collections.asr.models.rnnt_bpe_models.EncDecRNNTBPEModel",
        "model_defaults": {"tdt_durations": durations},
        "preprocessor": _FEATURES,
        "encoder": _FAST_CONFORMER,
        "decoder": {
            "blank_as_pad": True,
            "vocab_size": len(_PIECES),
            "prednet": {"pred_hidden": 32, "pred_rnn_layers": 1},
        },
        "joint": {
            "num_classes": len(_PIECES),
            "vocabulary": _PIECES,
            "jointnet": {"joint_hidden": 32, "activation": "relu", "encoder_hidden": 64, "pred_hidden": 32},
            "num_extra_outputs": len(durations),
        },
        "decoding": {"model_type": "tdt", "durations": durations, "greedy": {"max_symbols": 10}},
    }


def _nemotron(_: Mapping[str, int]) -> Config:
    return {
        "model_type": "nemotron_asr",
        "preprocessor": {**_FEATURES, "normalize": "NA"},
        "encoder": {**_FAST_CONFORMER, "causal_downsampling": True, "att_context_size": [[56, 13]]},
        "prompt": {"num_prompts": 4, "prompt_hidden": 64, "prompt_dictionary": {"auto": 0, "en-US": 1}},
        "decoder": {"pred_hidden": 32, "pred_rnn_layers": 1, "vocab_size": len(_PIECES)},
        "joint": {
            "joint_hidden": 32,
            "encoder_hidden": 64,
            "pred_hidden": 32,
            "num_classes": len(_PIECES),
        },
        "vocabulary": _PIECES,
    }


def _canary(_: Mapping[str, int]) -> Config:
    return {
        "model_type": "canary",
        "preprocessor": _FEATURES,
        "encoder": _FAST_CONFORMER,
        "transf_decoder": {
            "num_layers": 1,
            "hidden_size": 64,
            "num_attention_heads": 4,
            "inner_size": 96,
        },
        "enc_output_dim": 64,
        "vocab_size": piece_count(_CANARY),
    }


def _cohere(_: Mapping[str, int]) -> Config:
    decoder = {
        "hidden_size": 64,
        "inner_size": 96,
        "num_attention_heads": 4,
        "num_layers": 1,
        "max_sequence_length": 512,
    }
    return {
        "model_type": "cohere_asr",
        "vocab_size": piece_count(_CANARY),
        "preprocessor": _FEATURES,
        "encoder": _FAST_CONFORMER,
        "transf_decoder": {"config_dict": decoder},
        "head": {"hidden_size": 64, "num_classes": piece_count(_CANARY)},
    }


def _pieces_file(folder: Path) -> None:
    (folder / "tokenizer.model").write_bytes(sentence_pieces(_CANARY))
    special = {"bos_token": "<|startoftranscript|>", "eos_token": "<|endoftext|>", "pad_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))


def _firered(_: Mapping[str, int]) -> Config:
    return {
        "model_type": "fireredasr2",
        "odim": len(_PIECES),
        "d_model": 64,
        "encoder": {"n_layers": 1, "n_head": 4, "d_model": 64, "kernel_size": 33},
        "decoder": {"n_layers": 1, "n_head": 4, "d_model": 64},
    }


def _word_list(folder: Path) -> None:
    (folder / "dict.txt").write_text("".join(f"{piece} {index}\n" for index, piece in enumerate(_PIECES)))


def _granite(ids: Mapping[str, int]) -> Config:
    return {
        "model_type": "granite_speech",
        "audio_token_index": ids["<|audio|>"],
        "encoder_config": {
            "num_layers": 1,
            "hidden_dim": 64,
            "num_heads": 4,
            "dim_head": 16,
            "output_dim": 8,
            "conv_kernel_size": 15,
        },
        "projector_config": {
            "hidden_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "intermediate_size": 96,
            "encoder_hidden_size": 64,
        },
        "text_config": {
            "vocab_size": ids[""],
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "attention_multiplier": 0.25,
            "embedding_multiplier": 1.0,
            "residual_multiplier": 1.0,
            "logits_scaling": 1.0,
        },
    }


CONFORMER_KINDS: Mapping[str, SoundKind] = {
    "canary": SoundKind(_canary, None, _pieces_file),
    "cohere_asr": SoundKind(_cohere, None, _pieces_file),
    "fireredasr2": SoundKind(_firered, None, _word_list),
    "granite_speech": SoundKind(_granite, ("<|audio|>",)),
    "nemotron_asr": SoundKind(_nemotron, None),
    "parakeet": SoundKind(_parakeet, None),
}

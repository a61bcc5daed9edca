"""Tiny Whisper models that transcribe any audio as a given script.

A decoder block makes each token of the script lead to the next one: each of its hidden units detects one
token. The position in the answer does not matter, so prompts and windows may differ as with a trained model.
The audio's features have no effect on the text, so these models test only the code around a model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ("Ġhello", "Ġfrom", "Ġthe", "Ġtiny", "Ġwhisper.", "Ġin", "ĠEnglish.")
SCRIPT = ("<|0.00|>", "Ġhello", "Ġfrom", "Ġthe", "Ġtiny", "Ġwhisper.", "<|2.00|>", "<|endoftext|>")
"""Default script."""
TEXT = " hello from the tiny whisper."
TRANSLATED = ("<|0.02|>", "Ġin", "ĠEnglish.", "<|1.00|>", "<|endoftext|>")
"""Script of multilingual models for translations."""

_WIDTH = 64
_SHARPNESS = 4.0
_SPECIAL_BEFORE = ("<|endoftext|>", "<|startoftranscript|>")
_SPECIAL_AFTER = (
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)
_MULTILINGUAL_VOCABULARY = 51_865
"""Vocabulary size from which on mlx-audio treats a model as multilingual."""
_CONTEXT = 448


def make_tiny_whisper(
    folder: Path, *, multilingual: bool = False, script: Sequence[str] = SCRIPT, language: str = "en"
) -> Path:
    """Make a model of less than 10 MB in `folder`.

    Args:
        script: Tokens of each window's transcript, without repetitions.
        language: Language that multilingual models detect in every recording.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _vocabulary(multilingual)
    _write_tokenizer(folder, vocabulary)
    config = {
        "model_type": "whisper",
        "n_mels": 80,
        "n_audio_ctx": 1500,
        "n_audio_state": _WIDTH,
        "n_audio_head": 1,
        "n_audio_layer": 1,
        "n_vocab": len(vocabulary),
        "n_text_ctx": _CONTEXT,
        "n_text_state": _WIDTH,
        "n_text_head": 1,
        "n_text_layer": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    _write_weights(folder, config, vocabulary, _transitions(script, multilingual, language))
    return folder


def make_random_whisper(folder: Path) -> Path:
    """Make an English model without a script: its logits are noise."""
    from mlx.utils import tree_flatten

    make_tiny_whisper(folder)
    import mlx.core as mx

    model = _new_model(json.loads((folder / "config.json").read_text()))
    weights = {name: value * 3 for name, value in tree_flatten(model.parameters())}
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


def _vocabulary(multilingual: bool) -> dict[str, int]:
    """Return token ids, with the timestamps last, as Whisper's code expects."""
    from mlx_audio.stt.models.whisper.tokenizer import LANGUAGES
    from tokenizers import pre_tokenizers

    languages = [f"<|{code}|>" for code in list(LANGUAGES)[:99]]
    special = [*_SPECIAL_BEFORE, *languages, *_SPECIAL_AFTER]
    timestamps = [f"<|{index * 0.02:.2f}|>" for index in range(1501)]
    text = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *WORDS]
    missing = _MULTILINGUAL_VOCABULARY - len(text) - len(special) - len(timestamps) if multilingual else 0
    unused = [f"unused{index}" for index in range(missing)]
    return {token: index for index, token in enumerate([*text, *unused, *special, *timestamps])}


def _write_tokenizer(folder: Path, vocabulary: Mapping[str, int]) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(vocab=dict(vocabulary), merges=[], unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    first_timestamp = vocabulary["<|0.00|>"]
    named = [token for token in vocabulary if token.startswith("<|")]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True) for token in named if vocabulary[token] < first_timestamp]
    )
    tokenizer.add_tokens(
        [
            AddedToken(token, special=False, normalized=False)
            for token in named
            if vocabulary[token] >= first_timestamp
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    end = "<|endoftext|>"
    tokens = dict.fromkeys(("eos_token", "bos_token", "unk_token", "pad_token"), end)
    _write(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "WhisperTokenizer", "processor_class": "WhisperProcessor", **tokens},
    )
    _write(folder / "vocab.json", dict(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    features = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": 80,
        "sampling_rate": 16_000,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": 30,
        "n_samples": 480_000,
        "nb_max_frames": 3000,
        "padding_value": 0.0,
    }
    _write(folder / "preprocessor_config.json", features)


def _write(file: Path, content: Mapping[str, object]) -> None:
    file.write_text(json.dumps(content))


def _transitions(script: Sequence[str], multilingual: bool, language: str) -> dict[str, str]:
    """Return the next token of each token."""
    start = "<|startoftranscript|>"
    if not multilingual:
        return dict(pairwise([start, *script]))
    answers = dict(pairwise(["<|transcribe|>", *script])) | dict(pairwise(["<|translate|>", *TRANSLATED]))
    return {start: f"<|{language}|>", **answers}


def _new_model(config: Mapping[str, object]) -> Any:
    import mlx.core as mx
    from mlx_audio.stt.models.whisper.whisper import Model, ModelDimensions

    mx.random.seed(1)
    return Model(ModelDimensions.from_dict(dict(config)))


def _write_weights(
    folder: Path,
    config: Mapping[str, object],
    vocabulary: Mapping[str, int],
    transitions: Mapping[str, str],
) -> None:
    import mlx.core as mx
    from mlx.utils import tree_flatten

    weights = dict(tree_flatten(_new_model(config).parameters()))
    for name, value in weights.items():
        if name.startswith("decoder.blocks") and (".out." in name or ("mlp" in name and "ln" not in name)):
            weights[name] = mx.zeros_like(value)
    embeddings = np.random.default_rng(0).standard_normal((len(vocabulary), _WIDTH)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    known = embeddings[[vocabulary[token] for token in transitions]]
    following = embeddings[[vocabulary[token] for token in transitions.values()]]
    hidden, block = len(transitions), "decoder.blocks.0."
    # The layer norm scales an embedding to the square root of its width. Only the embedding that a unit
    # detects exceeds its threshold, and the unit's output then dominates the residual stream.
    first = np.zeros((4 * _WIDTH, _WIDTH), np.float32)
    first[:hidden] = known * 4
    second = np.zeros((_WIDTH, 4 * _WIDTH), np.float32)
    second[:, :hidden] = following.T * 2
    weights[block + "mlp1.weight"] = mx.array(first)
    weights[block + "mlp1.bias"] = mx.full((4 * _WIDTH,), -0.7 * 4 * _WIDTH**0.5)
    weights[block + "mlp2.weight"] = mx.array(second)
    weights["decoder.ln.weight"] *= _SHARPNESS
    weights["decoder.token_embedding.weight"] = mx.array(embeddings)
    weights["decoder.positional_embedding"] = mx.zeros((_CONTEXT, _WIDTH))
    halves = {name: value.astype(mx.float16) for name, value in weights.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), halves, metadata={"format": "mlx"})

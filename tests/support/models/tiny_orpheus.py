"""Tiny Orpheus and VyvoTTS, which write audio codes as tokens, and SNAC in the hub's cache.

Its layers do nothing. Each code at a position of a frame is followed by a code of the next
position, so the output can always be decoded.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

CODEC = "mlx-community/snac_24khz"
_CODES = 4_096
"""Size of SNAC's codebooks."""

_WIDTH = 32
_VARIETY = 8
"""Number of different codes at each position."""


@attrs.frozen
class _Speech:
    """Token ids that a library's code fixes.

    Args:
        backbone: `model_type` of the language model.
        first_custom: Id of the first token beside those of text.
        start: Id of the token that begins speech.
        end: Id of the token that ends speech.
        first_code: Id of the first audio code.
        codes: Number of codes at each place of a frame.
        places: Number of codes in a frame.
    """

    backbone: str
    first_custom: int
    start: int
    end: int
    first_code: int
    codes: int = _CODES
    places: int = 7

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return self.first_code + self.places * self.codes


_ORPHEUS = _Speech("llama", 128_256, 128_257, 128_258, 128_266)
_VYVO = _Speech("qwen3", 151_669, 151_670, 151_671, 151_679)


def make_tiny_orpheus(folder: Path) -> Path:
    """Make an Orpheus model in `folder`, about 20 MB because the library fixes the size of its vocabulary."""
    return _make(folder, _ORPHEUS)


def make_tiny_vyvo(folder: Path) -> Path:
    """Make a VyvoTTS model in `folder`, about 23 MB for the same reason."""
    return _make(folder, _VYVO)


def _make(folder: Path, speech: _Speech) -> Path:
    import mlx.core as mx

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config(speech)))
    _make_tokenizer(folder, _custom_tokens(speech))
    mx.random.seed(0)
    mx.save_safetensors(str(folder / "model.safetensors"), _weights(speech), metadata={"format": "mlx"})
    return folder


def make_tiny_snac(cache: Path) -> Path:
    """Put a tiny SNAC codec into a hub cache, as a download would; return the cache."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_audio.codec.models.snac import SNAC

    config = {
        "sampling_rate": 24_000,
        "encoder_dim": 2,
        "encoder_rates": [2, 4, 8, 8],
        "decoder_dim": 32,
        "decoder_rates": [8, 8, 4, 2],
        "attn_window_size": None,
        "codebook_size": _CODES,
        "codebook_dim": 2,
        "vq_strides": [4, 2, 1],
        "noise": False,
    }
    root = cache / f"models--{CODEC.replace('/', '--')}"
    commit = "0" * 40
    snapshot = root / "snapshots" / commit
    snapshot.mkdir(parents=True, exist_ok=True)
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / "main").write_text(commit)
    (snapshot / "config.json").write_text(json.dumps(config))
    mx.random.seed(1)
    weights = dict(tree_flatten(SNAC(**config).parameters()))
    mx.save_safetensors(str(snapshot / "model.safetensors"), weights)
    return cache


def _config(speech: _Speech) -> dict[str, Any]:
    return {
        "model_type": speech.backbone,
        "architectures": [f"{speech.backbone.title()}ForCausalLM"],
        "hidden_size": _WIDTH,
        "num_hidden_layers": 1,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": _WIDTH // 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": speech.vocabulary,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "max_position_embeddings": 4096,
    }


def _weights(speech: _Speech) -> dict[str, Any]:
    """Return weights that map each token to a one-hot vector of the next position in the frame."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    code: Any = importlib.import_module(f"mlx_audio.lm.models.{speech.backbone}")
    weights = dict(tree_flatten(code.Model(code.ModelArgs.from_dict(_config(speech))).parameters()))
    for name, value in weights.items():
        if "norm" in name:
            weights[name] = mx.ones_like(value)
        elif not name.startswith(("model.embed_tokens", "lm_head")):
            weights[name] = mx.zeros_like(value)
    codes = mx.arange(speech.vocabulary) - speech.first_code
    place = mx.where(codes >= 0, codes // speech.codes, -1)
    following = mx.where(place >= 0, (place + 1) % speech.places, speech.places)
    following[speech.start] = 0
    weights["model.embed_tokens.weight"] = _one_hot(following)
    written = (place >= 0) & (codes % speech.codes < _VARIETY)
    noise = mx.random.normal((speech.vocabulary, _WIDTH), scale=0.1)
    output = mx.where(written[:, None], _one_hot(place) * 4 + noise, mx.zeros((1,)))
    output[speech.start] = _one_hot(mx.array([speech.places]))[0] * 8  # the library looks for codes after it
    output[speech.end] = _one_hot(mx.zeros((1,), mx.int32))[0] * 4.1  # ends after some frames
    weights["lm_head.weight"] = output
    return {name: value.astype(mx.float16) for name, value in weights.items()}


def _one_hot(places: Any) -> Any:
    import mlx.core as mx

    return (places[:, None] == mx.arange(_WIDTH)[None, :]).astype(mx.float32)


def _custom_tokens(speech: _Speech) -> dict[str, int]:
    return {
        f"<custom_token_{index}>": speech.first_custom + index
        for index in range(speech.vocabulary - speech.first_custom)
    }


def _make_tokenizer(folder: Path, tokens: Mapping[str, int]) -> None:
    """Write a tokenizer of bytes and further tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab={**vocabulary, **tokens}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in list(tokens)[:_CODES]])
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<custom_token_2>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))

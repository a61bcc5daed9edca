"""A tiny Orpheus: a language model whose tokens are audio codes, and its codec in the hub's cache.

Its layers do nothing. Each code at a position of a seven-token frame is followed by a code of the next
position, so the output can always be decoded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CODEC = "mlx-community/snac_24khz"
_FIRST_CODE = 128_266
_CODES = 4_096
_PLACES = 7
_VOCABULARY = _FIRST_CODE + _PLACES * _CODES
_FIRST_CUSTOM = 128_256
_START_OF_SPEECH, _END_OF_SPEECH = 128_257, 128_258
_WIDTH = 32
_VARIETY = 8
"""Number of different codes at each position."""


def make_tiny_orpheus(folder: Path) -> Path:
    """Make an Orpheus model in `folder`, about 20 MB because the library fixes the size of its vocabulary."""
    import mlx.core as mx

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_config()))
    _make_tokenizer(folder)
    mx.random.seed(0)
    mx.save_safetensors(str(folder / "model.safetensors"), _weights(), metadata={"format": "mlx"})
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


def _config() -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": _WIDTH,
        "num_hidden_layers": 1,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-5,
        "vocab_size": _VOCABULARY,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "max_position_embeddings": 4096,
    }


def _weights() -> dict[str, Any]:
    """Return weights that map each token to a one-hot vector of the next position in the frame."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_audio.lm.models.llama import Model, ModelArgs

    weights = dict(tree_flatten(Model(ModelArgs.from_dict(_config())).parameters()))
    for name, value in weights.items():
        if "norm" in name:
            weights[name] = mx.ones_like(value)
        elif not name.startswith(("model.embed_tokens", "lm_head")):
            weights[name] = mx.zeros_like(value)
    codes = mx.arange(_VOCABULARY) - _FIRST_CODE
    place = mx.where(codes >= 0, codes // _CODES, -1)
    following = mx.where(place >= 0, (place + 1) % _PLACES, _PLACES)
    following[_START_OF_SPEECH] = 0
    weights["model.embed_tokens.weight"] = _one_hot(following)
    written = (place >= 0) & (codes % _CODES < _VARIETY)
    noise = mx.random.normal((_VOCABULARY, _WIDTH), scale=0.1)
    output = mx.where(written[:, None], _one_hot(place) * 4 + noise, mx.zeros((1,)))
    output[_START_OF_SPEECH] = _one_hot(mx.array([_PLACES]))[0] * 8  # the library looks for codes after it
    output[_END_OF_SPEECH] = _one_hot(mx.zeros((1,), mx.int32))[0] * 4.1  # ends after some frames
    weights["lm_head.weight"] = output
    return {name: value.astype(mx.float16) for name, value in weights.items()}


def _one_hot(places: Any) -> Any:
    import mlx.core as mx

    return (places[:, None] == mx.arange(_WIDTH)[None, :]).astype(mx.float32)


def _make_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    customs = {
        f"<custom_token_{index}>": _FIRST_CUSTOM + index for index in range(_VOCABULARY - _FIRST_CUSTOM)
    }
    tokenizer = Tokenizer(models.BPE(vocab={**vocabulary, **customs}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in list(customs)[:_CODES]])
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<custom_token_2>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))

"""Tiny real speech models: mlx-audio's own architectures with random weights.

Their output is noise. Pocket TTS never ends by itself: it generates one second for each word of a text chunk
and two more, in frames of 80 ms, so the length of its audio is known. The library fixes Kokoro's widths, so
it takes at least 230 MB.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SAMPLE_RATE = 24_000
FRAME_SAMPLES = 1_920
"""Samples of a Pocket TTS frame (80 ms)."""

_WIDTH = 64
_VOCABULARY = 300
_NEVER = -100.0
_LOUDER = 5.0
"""Scale of the decoder's weights; plain random ones are nearly silent."""

_SMALL = 0.02
"""Spread of Kokoro's weights that are initialised to all zeros or all ones."""

KOKORO_SYMBOLS = (
    ';:,.!?—…"()“” ABCDEFGHIJKLMNOPQRSTUVWXYZ'
    "abcdefghijklmnopqrstuvwxyzæðŋɑɔəɛɜɡɪɹʃʊʌʒʤʧˈˌːθᵊᵻɾ"  # noqa: RUF001
)


def make_tiny_pocket(
    folder: Path, *, voices: tuple[str, ...] = ("default",), clones: bool = False, end_bias: float = _NEVER
) -> Path:
    """Make a Pocket TTS model in `folder`, about 0.6 MB.

    Args:
        voices: Names of the files in `voices/`, each with a different voice.
        clones: True to add the encoder of reference audio.
        end_bias: Bias of the end-of-speech logit: 0 ends at once, the default never.
    """
    import mlx.core as mx
    from mlx_audio.tts.models.pocket_tts import Model, ModelConfig

    folder.mkdir(parents=True, exist_ok=True)
    config = _pocket_config(_make_tokenizer(folder), clones)
    (folder / "config.json").write_text(json.dumps(config))
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict({**json.loads(json.dumps(config)), "model_path": str(folder)}))
    weights = _weights(model)
    bias = weights["flow_lm.out_eos.bias"]
    weights["flow_lm.out_eos.weight"] = mx.zeros_like(weights["flow_lm.out_eos.weight"])
    weights["flow_lm.out_eos.bias"] = mx.full(bias.shape, end_bias)
    for name in weights:
        if name.startswith("mimi.decoder") and name.endswith("weight"):
            weights[name] = weights[name] * _LOUDER
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "voices").mkdir(exist_ok=True)
    for seed, voice in enumerate(voices):
        mx.random.seed(seed)
        prompt = {"audio_prompt": mx.random.normal((1, 4, _WIDTH))}
        mx.save_safetensors(str(folder / "voices" / f"{voice}.safetensors"), prompt)
    return folder


def make_tiny_kokoro(folder: Path, *, voices: tuple[str, ...] = ("af_heart", "bf_emma")) -> Path:
    """Make a Kokoro model in `folder`, about 230 MB; it needs the package `misaki` to speak."""
    import mlx.core as mx
    from mlx_audio.tts.models.kokoro import Model, ModelConfig

    folder.mkdir(parents=True, exist_ok=True)
    config = _kokoro_config()
    (folder / "config.json").write_text(json.dumps(config))
    mx.random.seed(0)
    weights = _weights(Model(ModelConfig.from_dict(config)))
    for name, value in weights.items():
        if name.endswith("weight_v") or mx.abs(value).max().item() == 0:
            value = weights[name] = mx.random.normal(value.shape, scale=_SMALL)
        if name.endswith("conv_post.weight_g"):  # exp() is applied to the output
            weights[name] = value * _SMALL
        if _is_torch_convolution(name, value.shape):
            weights[name] = mx.contiguous(value.transpose(0, 2, 1))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "voices").mkdir(exist_ok=True)
    for seed, voice in enumerate(voices):
        mx.random.seed(seed)
        pack = {"voice": mx.random.normal((510, 1, 256), scale=0.1)}
        mx.save_safetensors(str(folder / "voices" / f"{voice}.safetensors"), pack)
    return folder


def _is_torch_convolution(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether the library transposes a weight on load."""
    if name.endswith(("F0_proj.weight", "N_proj.weight")) or ("noise_convs" in name and len(shape) == 3):
        return True
    return name.endswith("weight_v") and not (shape[1] == shape[2] <= shape[0])


def _weights(model: Any) -> dict[str, Any]:
    from mlx.utils import tree_flatten

    return dict(tree_flatten(model.parameters()))


def _make_tokenizer(folder: Path) -> int:
    """Write a byte-level BPE tokenizer; return the size of its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=_VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([Path(json.__file__).read_text()], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer.get_vocab_size()


def _pocket_config(vocabulary: int, clones: bool) -> Mapping[str, Any]:
    transformer = {"hidden_scale": 2, "max_period": 10000, "d_model": _WIDTH, "num_heads": 2, "num_layers": 1}
    return {
        "model_type": "pocket_tts",
        "flow_lm": {
            "dtype": "float32",
            "flow": {"dim": 64, "depth": 1},
            "transformer": transformer,
            "lookup_table": {
                "dim": _WIDTH,
                "n_bins": vocabulary,
                "tokenizer": "huggingface",
                "tokenizer_path": "tokenizer.json",
            },
        },
        "mimi": {
            "dtype": "float32",
            "sample_rate": SAMPLE_RATE,
            "channels": 1,
            "frame_rate": 12.5,
            "encoder_enabled": clones,
            "seanet": {
                "dimension": 32,
                "channels": 1,
                "n_filters": 4,
                "n_residual_layers": 1,
                "ratios": [6, 5, 4],
                "kernel_size": 7,
                "residual_kernel_size": 3,
                "last_kernel_size": 3,
                "dilation_base": 2,
                "pad_mode": "constant",
                "compress": 2,
            },
            "transformer": {
                "d_model": 32,
                "input_dimension": 32,
                "output_dimensions": [32],
                "num_heads": 2,
                "num_layers": 1,
                "layer_scale": 0.01,
                "context": 64,
                "dim_feedforward": 64,
            },
            "quantizer": {"dimension": 8, "output_dimension": 32},
        },
    }


def _kokoro_config() -> Mapping[str, Any]:
    return {
        "istftnet": {
            "upsample_kernel_sizes": [4, 4],
            "upsample_rates": [2, 2],
            "gen_istft_hop_size": 5,
            "gen_istft_n_fft": 20,
            "resblock_dilation_sizes": [[1, 3, 5]],
            "resblock_kernel_sizes": [3],
            "upsample_initial_channel": 512,
        },
        "dim_in": 512,
        "dropout": 0.2,
        "hidden_dim": 512,
        "max_conv_dim": 64,
        "max_dur": 8,
        "multispeaker": True,
        "n_layer": 1,
        "n_mels": 80,
        "n_token": len(KOKORO_SYMBOLS) + 1,
        "style_dim": 128,
        "text_encoder_kernel_size": 5,
        "plbert": {
            "hidden_size": 32,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 512,
            "num_hidden_layers": 1,
            "dropout": 0.1,
        },
        "vocab": {symbol: index + 1 for index, symbol in enumerate(dict.fromkeys(KOKORO_SYMBOLS))},
    }

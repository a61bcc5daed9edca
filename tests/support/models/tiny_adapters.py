"""LoRA adapters of tiny models, trained by mlx-lm's own trainer, and the same in PEFT's layout."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import optimizers
from mlx.utils import tree_flatten
from mlx_lm.tuner.trainer import TrainingArgs, train
from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters
from mlx_lm.utils import load_model, save_model

KEYS = ("self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")


def quantize(base: Path, folder: Path) -> Path:
    """Write a 4-bit copy of a model."""
    from mlx_lm.utils import quantize_model

    folder.mkdir(parents=True)
    model, config = load_model(base)
    model, config = quantize_model(model, config, group_size=32, bits=4)
    save_model(folder, model)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (folder / name).write_bytes((base / name).read_bytes())
    return folder


def train_adapter(
    base: Path,
    folder: Path,
    answer: Sequence[int],
    rank: int = 8,
    keys: Sequence[str] = KEYS,
    iterations: int = 12,
    scale: float = 4.0,
    layers: int = 4,
) -> Path:
    """Train an adapter that makes a model repeat some tokens, and save it in mlx-lm's layout.

    Args:
        keys: Adapted layers, within each block or from the model on.
    """
    folder.mkdir(parents=True)
    parameters = {"rank": rank, "scale": scale, "dropout": 0.0, "keys": list(keys)}
    model, _ = load_model(base)
    mx.random.seed(rank)
    model.freeze()
    linear_to_lora_layers(model, layers, dict(parameters))
    text = [7, 8, 9, *[*answer] * 4]
    arguments = TrainingArgs(
        batch_size=1,
        iters=iterations,
        val_batches=0,
        steps_per_report=10_000,
        steps_per_eval=10_000,
        steps_per_save=10_000,
        adapter_file=str(folder / "adapters.safetensors"),
    )
    train(model, optimizers.Adam(learning_rate=3e-3), [(text, 3)] * 2, args=arguments)
    config = {
        "fine_tune_type": "lora",
        "num_layers": layers,
        "lora_parameters": parameters,
        "model": str(base),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def make_adapter(
    base: Path,
    folder: Path,
    rank: int = 8,
    keys: Sequence[str] = KEYS,
    *,
    layers: int = 4,
    seed: int = 0,
    scale: float = 4.0,
    named: str | None = None,
) -> Path:
    """Write an adapter of random factors in mlx-lm's layout, which changes every answer.

    Args:
        named: Name of the base in its configuration; None for the base's folder.
    """
    folder.mkdir(parents=True)
    parameters = {"rank": rank, "scale": scale, "dropout": 0.0, "keys": list(keys)}
    model, _ = load_model(base)
    model.freeze()
    linear_to_lora_layers(model, layers, dict(parameters))
    mx.random.seed(seed + 1)
    factors = {
        name: mx.random.normal(value.shape, scale=0.08)
        for name, value in tree_flatten(model.trainable_parameters())
    }
    mx.save_safetensors(str(folder / "adapters.safetensors"), factors)
    config = {"num_layers": layers, "lora_parameters": parameters, "model": named or str(base)}
    (folder / "adapter_config.json").write_text(json.dumps({"fine_tune_type": "lora", **config}))
    return folder


def as_peft(adapter: Path, folder: Path, base: str, *, rslora: bool = False) -> Path:
    """Write an adapter in PEFT's layout."""
    folder.mkdir(parents=True)
    config = json.loads((adapter / "adapter_config.json").read_text())["lora_parameters"]
    rank, written = config["rank"], {}
    factors: Any = mx.load(str(adapter / "adapters.safetensors"))
    for name, value in factors.items():
        module, _, kind = name.rpartition(".")
        module = f"base_model.model.{module}"
        kind = {"lora_a": "lora_A", "lora_b": "lora_B"}[kind]
        if value.ndim == 3:
            holder, _, leaf = module.rpartition(".switch_mlp.")
            for index in range(value.shape[0]):
                written[f"{holder}.experts.{index}.{leaf}.{kind}.weight"] = mx.contiguous(value[index])
        elif "embed" in module:
            written[f"{module}.{kind.replace('lora_', 'lora_embedding_')}"] = mx.contiguous(value.T)
        else:
            written[f"{module}.{kind}.weight"] = mx.contiguous(value.T)
    mx.save_safetensors(str(folder / "adapter_model.safetensors"), written)
    alpha = config["scale"] * (rank**0.5 if rslora else rank)
    about = {"peft_type": "LORA", "base_model_name_or_path": base, "r": rank, "lora_alpha": alpha}
    (folder / "adapter_config.json").write_text(json.dumps({**about, "use_rslora": rslora}))
    return folder


def unfused(base: Any, adapter: Path) -> Any:
    """Return a model with mlx-lm's own layers of an adapter."""
    return load_adapters(base, str(adapter))

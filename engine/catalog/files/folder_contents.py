"""Error texts about a folder without a model, or without weights in a supported format."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

ADAPTER_CONFIG = "adapter_config.json"
ADAPTERS = ("adapters.safetensors", "adapter_model.safetensors", "adapter_model.bin", "adapters.npz")
"""Weights of adapters (LoRA), as mlx-lm and PEFT write them."""

_FORMATS = {
    ".gguf": "GGUF",
    ".npz": "NumPy arrays",
    ".bin": "PyTorch's weights",
    ".pt": "PyTorch's weights",
    ".pth": "PyTorch's weights",
    ".onnx": "ONNX",
    ".h5": "TensorFlow's weights",
    ".msgpack": "Flax's weights",
}
_NO_WEIGHTS = frozenset(
    {"training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"}
)
"""Files that training leaves behind."""

_MOST_ENTRIES = 5_000
_LONGEST_NAME = 80


def why_no_model(folder: Path) -> str:
    """Return the reason why a folder without a config.json is no model, as a clause without a full stop."""
    names = _names(folder)
    if not names and folder.is_dir():
        return "its folder is empty: there is no config.json"
    if "model_index.json" in names:
        return "it is a pipeline of diffusers (model_index.json), which is not served here"
    return f"there is no config.json in its folder{other_weights(folder)}"


def other_weights(folder: Path) -> str:
    """Return a clause about weights in unsupported formats (`; it holds …`); empty if there are none."""
    names = _names(folder)
    if (adapter := find_adapter(folder)) is not None:
        return f"; it holds an adapter ({adapter}), which needs the model that it was trained for"
    for name in names:
        kind = _FORMATS.get(Path(name).suffix.lower())
        if kind is not None and name not in _NO_WEIGHTS:
            return f"; it holds {kind} ({_shown(name)}), which Greenroom does not read"
    return ""


def find_adapter(folder: Path) -> str | None:
    """Return the name of a folder's adapter weight file (LoRA); None if there is none."""
    if not (folder / ADAPTER_CONFIG).is_file():
        return None
    return next((name for name in ADAPTERS if (folder / name).is_file()), None)


def _names(folder: Path) -> list[str]:
    """Return the sorted names in a folder, without hidden ones."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in itertools.islice(entries, _MOST_ENTRIES)]
    except OSError:
        return []
    return sorted(name for name in names if not name.startswith("."))


def _shown(name: str) -> str:
    printable = "".join(each if each.isprintable() else "?" for each in name)
    return printable if len(printable) <= _LONGEST_NAME else printable[: _LONGEST_NAME - 1] + "…"

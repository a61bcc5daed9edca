"""The weight files of a model that speaks: whatever they are called, all in its folder are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from safetensors import safe_open

from greenroom.engine.loading.weight_files import check_header


def check_speech_weights(folder: Path) -> None:
    """Make sure that the weight files are whole: a torn one can end the process.

    Raises:
        ValueError: One sentence about what is wrong with which file.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files and not any(folder.glob("*.npz")):
        raise ValueError("there are no weights (*.safetensors) in its folder")
    for file in files:
        check_header(file)


def weight_names(folder: Path) -> Iterator[str]:
    """Yield the names of the weights; reads no more than the files' heads.

    Raises:
        ValueError: A file is not whole.
    """
    for file in sorted(folder.glob("*.safetensors")):
        check_header(file)
        with safe_open(file, framework="numpy") as weights:
            yield from weights.keys()

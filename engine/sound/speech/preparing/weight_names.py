"""The weight files of a model that speaks: whatever they are called, all in its folder are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.catalog.files.regular_files import check_folder
from greenroom.engine.loading.stated_sizes import check_sizes
from greenroom.engine.loading.weight_files import read_header


def check_speech_weights(folder: Path) -> None:
    """Make sure that the weight files are whole: a torn one can end the process.

    Raises:
        ValueError: One sentence about what is wrong with which file.
    """
    check_folder(folder)
    files = sorted(folder.glob("*.safetensors"))
    if not files and not any(folder.glob("*.npz")):
        raise ValueError("there are no weights (*.safetensors) in its folder")
    check_sizes(read_optional(folder / "config.json"), [read_header(file) for file in files])


def weight_names(folder: Path) -> Iterator[str]:
    """Yield the names of the weights; reads no more than the files' heads.

    Raises:
        ValueError: A file is not whole.
    """
    for file in sorted(folder.glob("*.safetensors")):
        yield from read_header(file)

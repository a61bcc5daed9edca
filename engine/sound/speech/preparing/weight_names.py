"""The weight files of a speech model: all in its folder are read, whatever their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.catalog.files.regular_files import check_folder
from greenroom.engine.loading.stated_sizes import check_sizes
from greenroom.engine.loading.weight_files import read_header


def check_speech_weights(folder: Path) -> None:
    """Check that the weight files are complete: a truncated one can crash the process.

    Raises:
        ValueError: One sentence that names the file and the fault.
    """
    check_folder(folder)
    files = sorted(folder.glob("*.safetensors"))
    if not files and not any(folder.glob("*.npz")):
        raise ValueError("there are no weights (*.safetensors) in its folder")
    check_sizes(read_optional(folder / "config.json"), [read_header(file) for file in files])


def weight_names(folder: Path) -> Iterator[str]:
    """Yield the names of the weights; reads only the files' headers.

    Raises:
        ValueError: A file is incomplete.
    """
    for file in sorted(folder.glob("*.safetensors")):
        yield from read_header(file)

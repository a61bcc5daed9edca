"""The files of a model's weights, checked before a library reads them: a torn one can end the process."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

from greenroom.engine.catalog.files.json_files import read_optional


def check_weight_files(folder: Path) -> None:
    """Make sure that all weight files are there and whole.

    Raises:
        ValueError: One sentence about what is wrong with which file.
    """
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ValueError("there are no weights (model*.safetensors) in its folder")
    index = read_optional(folder / "model.safetensors.index.json").get("weight_map")
    if isinstance(index, dict):
        present = {file.name for file in files}
        missing = sorted({str(name) for name in index.values()} - present)
        # A re-packed model may keep a stale index beside one complete file.
        if missing and "model.safetensors" not in present:
            raise ValueError(f"{missing[0]} is missing ({len(missing)} of its weight files are)")
    for file in files:
        check_header(file)


def check_header(file: Path) -> None:
    """Make sure that a safetensors file is as long as its header says.

    Raises:
        ValueError: One sentence about what is wrong with it.
    """
    try:
        with safe_open(file, framework="numpy"):  # reads the header and compares it with the file's length
            pass
    except SafetensorError as error:
        reason = str(error).removeprefix("Error while deserializing header: ")
        raise ValueError(f"{file.name} is no whole safetensors file ({reason[:100]})") from None
    except OSError as error:
        raise ValueError(f"{file.name} cannot be read ({error.strerror or type(error).__name__})") from error

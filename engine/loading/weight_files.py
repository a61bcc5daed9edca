"""The files of a model's weights, checked before a library reads them: a torn one can end the process."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.model_files import read_optional

_LARGEST_HEADER = 100_000_000
"""Bytes; the format's own limit."""


def check_weight_files(folder: Path) -> None:
    """Make sure that all weight files are there and whole.

    The layout is the safetensors format's: an 8-byte length, a JSON header of that length, then the tensors.

    Raises:
        ValueError: One sentence about what is wrong with which file.
    """
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ValueError("there are no weights (model*.safetensors) in its folder")
    index = read_optional(folder / "model.safetensors.index.json").get("weight_map")
    if isinstance(index, dict):
        there = {file.name for file in files}
        missing = sorted({str(name) for name in index.values()} - there)
        # A re-packed model may keep a stale index beside one complete file.
        if missing and "model.safetensors" not in there:
            raise ValueError(f"{missing[0]} is missing ({len(missing)} of its weight files are)")
    for file in files:
        _check_whole(file)


def _check_whole(file: Path) -> None:
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > min(size - 8, _LARGEST_HEADER):
                raise ValueError
            header: Any = json.loads(stream.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        expected = 8 + length + max(ends, default=0)
    except OSError as error:
        raise ValueError(f"{file.name} cannot be read ({error.strerror or type(error).__name__})") from error
    except (struct.error, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise ValueError(f"{file.name} is no safetensors file, or only the beginning of one") from None
    if size < expected:
        raise ValueError(f"{file.name} is cut off: {size} of {expected} bytes are there")

"""An emulated slow disk: weights are wrong until they are read explicitly."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx
import pytest


@attrs.define
class LateDisk:
    """A copy of a model whose files have wrong weights after their headers until `os.pread` reads them.

    Correct results prove that the program waited for the disk: MLX reads wrong numbers from unread parts.

    Attributes:
        folder: Folder of the copy.
        reads: Reads so far: the file's path in the folder, offset in bytes, and number of bytes.
        on_read: Callback before each read; a slow callback makes a slow disk.
    """

    folder: Path
    reads: list[tuple[str, int, int]] = attrs.field(factory=list)
    on_read: Callable[[], None] = lambda: None


def late_disk(model: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> LateDisk:
    """Make a `LateDisk`; reads take their data from `model` during the test."""
    disk = LateDisk(Path(shutil.copytree(model, copy)))
    whole = dict[tuple[int, int], Path]()
    for file in disk.folder.rglob("*.safetensors"):
        with file.open("r+b") as opened:
            header = int.from_bytes(opened.read(8), "little")
            opened.seek(8 + header)
            opened.write(b"\x3f" * (file.stat().st_size - 8 - header))
        found = file.stat()
        whole[found.st_dev, found.st_ino] = file.relative_to(disk.folder)
    read = os.pread

    def read_late(descriptor: int, count: int, offset: int, /) -> bytes:
        found = os.fstat(descriptor)
        if (name := whole.get((found.st_dev, found.st_ino))) is None:
            return read(descriptor, count, offset)
        disk.on_read()
        disk.reads.append((str(name), offset, count))
        with (model / name).open("rb") as original:
            original.seek(offset)
            data = original.read(count)
        if (disk.folder / name).exists():
            with (disk.folder / name).open("r+b") as late:
                late.seek(offset)
                late.write(data[: found.st_size - offset])
        return read(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", read_late)
    return disk


def unstack_experts(folder: Path, copy: Path) -> Path:
    """Copy a mixture-of-experts model with one tensor for each expert's matrix, as makers publish them."""
    shutil.copytree(folder, copy)
    file = copy / "model.safetensors"
    weights: Any = mx.load(str(file))
    unstacked = dict[str, mx.array]()
    for name, value in weights.items():
        if ".switch_mlp." in name:
            for number, expert in enumerate(value):
                unstacked[name.replace(".switch_mlp.", f".experts.{number}.")] = expert
        else:
            unstacked[name] = value
    mx.eval(unstacked)
    mx.save_safetensors(str(file), unstacked, metadata={"format": "mlx"})
    return copy

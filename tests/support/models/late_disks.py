"""A disk whose bytes come late: what nobody has waited for is not there."""

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
    """A copy of a model whose files hold nothing but their headers until `os.pread` asks for the rest.

    Whatever MLX reads before that is another number: who computes with the right weights has waited.

    Attributes:
        folder: The copy.
        reads: What was asked for: the file's path in the folder, the first byte, and how many.
        on_read: Called before each answer; what it takes, the disk takes.
    """

    folder: Path
    reads: list[tuple[str, int, int]] = attrs.field(factory=list)
    on_read: Callable[[], None] = lambda: None


def late_disk(model: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> LateDisk:
    """Return such a copy; the kept original answers as long as the test runs."""
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
    """Copy a model of experts with each of their matrices by itself, as they come from their makers."""
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

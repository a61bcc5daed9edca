"""Detection of vision weights in a model's folder, by tensor names only."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.catalog.files.regular_files import open_regular

_SEES = re.compile(
    r"(?:^|\.)(?:vision|visual|vit|vpm|img|image_encoder|image_tower|siglip|patch_embed|sam_model)",
    re.IGNORECASE,
)
"""Pattern of the names that models give their vision towers: `vision_tower`, `model.visual`, `vpm`, …"""

_MAX_HEADER_BYTES = 100_000_000
"""Size limit of the header, as in the reference reader. Source: safetensors' README, "Format"."""


def holds_vision_weights(folder: Path) -> bool:
    """Return whether weight files hold a vision tower, by the names in their index or headers."""
    try:
        files = sorted(path for path in folder.glob("*.safetensors*") if path.is_file())
        stamps = tuple((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    except OSError:
        return False
    return _sees(folder, stamps)


@functools.lru_cache(maxsize=256)
def _sees(folder: Path, stamps: tuple[tuple[str, int, int], ...]) -> bool:
    """Return the result for files of these names, sizes and times, which form the cache key."""
    index = read_optional(folder / "model.safetensors.index.json").get("weight_map")
    if isinstance(index, dict) and index:
        return any(_SEES.search(name) is not None for name in index)
    files = (folder / name for name, _, _ in stamps if name.endswith(".safetensors"))
    return any(_SEES.search(name) is not None for file in files for name in _names(file))


def _names(file: Path) -> Iterator[str]:
    """Yield the tensor names of a file; none if it is broken."""
    try:
        with open_regular(file) as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length)) if length <= _MAX_HEADER_BYTES else None
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(header, dict):
        yield from header

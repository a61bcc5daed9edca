"""A digest of everything that a computed prefix depends on, so that no model continues another's."""

from __future__ import annotations

import hashlib
import json
import struct
from importlib.metadata import version
from pathlib import Path
from typing import Any

from greenroom.engine.kv_cache import caches
from greenroom.engine.prefix_cache.disk.block_file import VERSION
from greenroom.schemas.settings import Settings

_TEXT_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model")
_TEMPLATES = "chat_template*"

_STRIDE = 16 * 1024 * 1024
_SAMPLE = 64
"""Bytes that are read of a tensor's beginning, of its end, and of every 16 MiB between."""

_SETTINGS = ("dtype", "kv_bits")
"""Settings that change what is computed."""

_COMPUTED_BY = ("mlx-lm",)
"""Libraries of which another version may compute otherwise."""


def fingerprint(folder: Path, settings: Settings, model: Any) -> str:
    """32 hexadecimal digits.

    Reading all weights would take as long as loading them, so of every tensor samples are read: training,
    merging and quantising change nearly all numbers of nearly all tensors. Names, shapes, types and sizes
    count whole; times and places of files do not, so that a folder may be moved. Someone who patches single
    numbers in a weight file by hand has to clear the prefix folder.

    Args:
        model: The loaded model, for the classes of its layers' caches.

    Raises:
        OSError: A file cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    chosen = {name: str(getattr(settings, name)) for name in _SETTINGS}
    layout = [type(leaf).__name__ for leaf in caches.flat_layers(caches.new_cache(model))]
    versions = [version(name) for name in _COMPUTED_BY]
    basis = [VERSION, versions, chosen, layout]
    digest.update(json.dumps(basis).encode())
    texts = [path for name in _TEXT_FILES if (path := folder / name).is_file()]
    texts += sorted(path for path in folder.glob(_TEMPLATES) if path.is_file())
    texts += sorted(folder.glob(f"{_TEMPLATES}/*.jinja"))
    for path in texts:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode() + content)
    for path in sorted(folder.glob("model*.safetensors")):
        digest.update(f"{path.name} {path.stat().st_size} ".encode())
        _add_weights(digest, path)
    return digest.hexdigest()


def _add_weights(digest: Any, path: Path) -> None:
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        text = stream.read(length)
        digest.update(text)
        header: dict[str, Any] = json.loads(text)
        for name in sorted(header):
            if name == "__metadata__":
                continue
            begin, end = header[name]["data_offsets"]
            for at in (*range(begin, end, _STRIDE), max(begin, end - _SAMPLE)):
                stream.seek(8 + length + at)
                digest.update(stream.read(min(_SAMPLE, end - at)))

"""A hash of everything that a computed prefix depends on, so that no model continues another's."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from greenroom.engine.kv_cache import caches
from greenroom.engine.prefix_cache.disk.block import VERSION
from greenroom.schemas.settings import Settings

_TEXT_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model")
_TEMPLATES = "chat_template*"

_SAMPLES = 4096
_SAMPLE = 4096
"""Bytes of each sample of a weight file: so many of them, evenly, or all of a file that is no larger."""

_SETTINGS = ("dtype", "kv_bits")
"""Settings that change what is computed."""

_COMPUTED_BY = ("mlx-lm", "mlx-vlm")
"""Libraries of which another version may compute otherwise."""


def fingerprint(folder: Path, settings: Settings, model: Any) -> str:
    """Return 32 hexadecimal digits.

    Reading all weights would take as long as loading them, so samples are read: training, merging and
    quantizing change nearly all numbers of nearly all tensors. Sizes of files count; their times and places
    do not, so that a folder may be moved. Someone who patches single numbers in a large weight file by hand
    has to clear the prefix folder.

    Args:
        model: The loaded model, for the classes of its layers' caches.

    Raises:
        OSError: A file cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    chosen = {name: str(getattr(settings, name)) for name in _SETTINGS}
    layout = [type(layer).__name__ for layer in caches.flat_layers(caches.new_cache(model))]
    versions = [version(name) for name in _COMPUTED_BY]
    digest.update(json.dumps([VERSION, versions, chosen, layout]).encode())
    texts = [path for name in _TEXT_FILES if (path := folder / name).is_file()]
    texts += sorted(path for path in folder.glob(_TEMPLATES) if path.is_file())
    texts += sorted(folder.glob(f"{_TEMPLATES}/*.jinja"))
    for path in texts:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode() + content)
    for path in sorted(folder.glob("model*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as stream:
            for at in range(0, size, max(_SAMPLE, size // _SAMPLES)):
                stream.seek(at)
                digest.update(stream.read(_SAMPLE))
    return digest.hexdigest()

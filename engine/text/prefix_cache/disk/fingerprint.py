"""Fingerprint of everything that a cached prefix depends on, so that no model reuses another's prefixes."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from greenroom.engine.kv_cache import caches
from greenroom.engine.loading.devices import weight_type
from greenroom.engine.loading.read_weights import is_packed
from greenroom.engine.text.prefix_cache.disk.block import VERSION
from greenroom.schemas.settings.settings import Settings

_TEXT_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model")
_TEMPLATES = "chat_template*"

_SAMPLES = 4096
_SAMPLE = 4096
"""Bytes per sample of a weight file; `_SAMPLES` evenly spaced ones are read, or all of a smaller file."""

_COMPUTED_BY = ("mlx-lm", "mlx-vlm")
"""Libraries whose version may change the computed tensors."""


def fingerprint(folder: Path, settings: Settings, model: Any) -> str:
    """Return a model's fingerprint, 32 hexadecimal digits.

    Reading all weights would take as long as loading them, so only samples are read: training, merging and
    quantization change nearly all numbers of nearly all tensors. File sizes count; timestamps and paths do
    not, so a folder may be moved. Whoever patches single numbers in a large weight file by hand must clear
    the prefix folder.

    Args:
        model: Loaded model, for the classes of its layer caches.

    Raises:
        OSError: A file cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    dtype = weight_type(settings, is_packed(model))
    chosen = {"dtype": dtype, "kv_bits": str(settings.kv_bits)}
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

"""Audio codecs that a speech model uses beside its own weights.

For some architectures, the library's code loads a codec at import, into a variable of its module. So the
codec is no parameter of the model, and it stays in memory when the model is unloaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from greenroom.engine.loading.read_weights import weight_bytes

_NAMED = {"outetts": "mlx-community/dac-speech-24khz-1.5kbps"}
"""Codec repositories that an architecture's code loads only with the first text."""


def download_codec(architecture: str) -> Path | None:
    """Return the folder of the codec that an architecture loads later, after a download; None if it has none.

    Raises:
        huggingface_hub.errors.LocalEntryNotFoundError: It is not in the cache, and there is no network.
    """
    if (codec := _NAMED.get(architecture)) is None:
        return None
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(repo_id=codec, allow_patterns=["*.safetensors", "*.json"]))


def codec_bytes(model: Any, architecture: str) -> int:
    """Return the bytes of the codecs that a model uses, read or not."""
    read = sum(weight_bytes(codec) for module in _modules(type(model)) for codec in _codecs_of(module))
    folder = download_codec(architecture)
    return (
        read if folder is None else read + sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    )


def forget_codecs(code: type[Any]) -> None:
    """Remove a model's code from the imported modules, so that its codecs can be freed.

    Args:
        code: The library's class of the model.
    """
    for module in _modules(code):
        if any(_codecs_of(module)):
            package = module.__name__.rpartition(".")[0]
            for name in (module.__name__, package):
                sys.modules.pop(name, None)


def _modules(code: type[Any]) -> Iterator[ModuleType]:
    if (module := sys.modules.get(code.__module__)) is not None:
        yield module


def _codecs_of(module: ModuleType) -> Iterator[Any]:
    """Yield the models among a module's variables."""
    import mlx.nn as nn

    return (value for value in vars(module).values() if isinstance(value, nn.Module))

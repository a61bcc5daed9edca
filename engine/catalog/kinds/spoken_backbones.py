"""Detection of language models that speak: they have a chat model's configuration, but tokens for audio.

mlx-audio takes the architecture from its caller or from the folder's name; a server must detect it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.files.regular_files import open_regular

_BACKBONES = frozenset({"llama", "qwen2", "qwen3"})

_OWN = ""
"""Marker for the folder of mlx-audio with the backbone's own name (Orpheus is `llama`, VyvoTTS `qwen3`)."""

_TOKENS: Mapping[str, tuple[bytes, ...]] = {
    _OWN: (b'"<custom_token_0>"', b'"<custom_token_4095>"'),
    "outetts": (b'"<|global_features_start|>"', b'"<|voice_characteristic_start|>"'),
    "spark": (b'"<|bicodec_global_0|>"', b'"<|bicodec_semantic_0|>"'),
    "soprano": (b'"[START]"', b'"[STOP]"', b'"[TEXT]"'),
}
"""Tokens that identify an architecture, by mlx-audio's name for it; a model must have all of them."""

_NAMES: Mapping[str, str] = {"orpheus": _OWN, "outetts": "outetts", "soprano": "soprano", "spark": "spark"}
"""Architectures by a word of the model's name; the name must contain the word `tts` too."""

_HEAD = 2 << 20
"""Bytes to read at the start of a tokenizer's file, which lists the added tokens first."""


def speaking_architecture(folder: Path, config: Mapping[str, Any], name: str) -> str | None:
    """Return mlx-audio's name for a language model that speaks; None for a model that writes.

    Args:
        name: The model's id.
    """
    backbone = config.get("model_type")
    if backbone not in _BACKBONES:
        return None
    found = _by_tokens(folder)
    if found is None:
        found = _by_name(name)
    return None if found is None else found or str(backbone)


def _by_tokens(folder: Path) -> str | None:
    for name in ("tokenizer_config.json", "tokenizer.json", "added_tokens.json"):
        try:
            with open_regular(folder / name) as file:
                head = file.read(_HEAD)
        except (OSError, ValueError):
            continue
        for library_name, tokens in _TOKENS.items():
            if all(token in head for token in tokens):
                return library_name
    return None


def _by_name(name: str) -> str | None:
    words = re.split(r"[^a-z0-9]+", name.lower().rstrip("/").rpartition("/")[2])
    if "tts" not in words and "outetts" not in words:
        return None
    return next((_NAMES[word] for word in words if word in _NAMES), None)

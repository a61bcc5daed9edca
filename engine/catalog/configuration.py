"""The context length in a model's configuration, and a check for its vision weights."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.model_files import open_regular, read_optional, text_config

DEFAULT_CONTEXT_LENGTH = 8192
"""Context length in tokens if no file states one (mostly recurrent models, which have no limit)."""

_FIELDS = (
    "max_position_embeddings",
    "max_sequence_length",
    "max_seq_len",
    "max_seq_length",
    "model_max_length",
    "seq_length",
    "n_positions",
    "n_ctx",
)
_MAX_CONTEXT_LENGTH = 2**31 - 1
_MAX_TOKENIZER_CONTEXT_LENGTH = 10_000_000
"""Largest plausible value in tokens; tokenizers without a limit declare 10^30."""


def declared_context_length(folder: Path, config: Mapping[str, Any], text_module: Path | None) -> int:
    """Return the context length in tokens from config.json, else the tokenizer, else mlx-lm's default.
    `text_module`: file of mlx-lm that implements the architecture.
    """
    for source in (text_config(config), config):
        for field in _FIELDS:
            length = _as_token_count(source.get(field), _MAX_CONTEXT_LENGTH)
            if length is not None:
                return max(length, _yarn_context_length(source))
    tokenizer = read_optional(folder / "tokenizer_config.json")
    length = _as_token_count(tokenizer.get("model_max_length"), _MAX_TOKENIZER_CONTEXT_LENGTH)
    return length or _library_default(text_module) or DEFAULT_CONTEXT_LENGTH


def _as_token_count(value: Any, largest: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= largest:
        return None
    return value


def _yarn_context_length(config: Mapping[str, Any]) -> int:
    """Return the context length after YaRN scaling; unlike others, it is not part of the declared length."""
    for scaling in _rope_settings(config):
        kind = scaling.get("rope_type", scaling.get("type"))
        original = _as_token_count(scaling.get("original_max_position_embeddings"), _MAX_CONTEXT_LENGTH)
        factor = scaling.get("factor")
        if kind == "yarn" and original and isinstance(factor, int | float) and 1 <= factor <= 1024:
            return min(int(original * factor), _MAX_CONTEXT_LENGTH)
    return 0


def _rope_settings(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for field in ("rope_scaling", "rope_parameters"):
        settings = config.get(field)
        if isinstance(settings, dict):
            yield settings
            yield from (nested for nested in settings.values() if isinstance(nested, dict))


def _library_default(module: Path | None) -> int | None:
    if module is None:
        return None
    match = re.search(
        r"^\s+max_position_embeddings: .*= ([\d_]+)", module.read_text(encoding="utf-8"), re.MULTILINE
    )
    return int(match.group(1)) if match else None


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

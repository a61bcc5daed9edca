"""Context length of a model, from the various places in which its files may state it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.files.json_files import read_optional
from greenroom.engine.catalog.files.text_config import text_config

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

    Args:
        text_module: File of mlx-lm that implements the architecture.
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
    """Return the value if it is a plausible number of tokens."""
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
    """Yield the RoPE settings, which newer configurations state per layer type."""
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

"""How long a model's context is, from the many places where its files may say so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.model_files import read_optional

DEFAULT_CONTEXT = 8192
"""Tokens, for a model whose files say nothing (most recurrent ones, which have no bound)."""

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
_LARGEST = 2**31 - 1
_LARGEST_DECLARED_BY_TOKENIZER = 10_000_000
"""Tokenizers that know no bound declare 10^30."""


def declared_context(folder: Path, config: Mapping[str, Any], text_module: Path | None) -> int:
    """Tokens that fit: what config.json says, else the tokenizer, else mlx-lm's own default.

    Args:
        text_module: The file of mlx-lm that implements the architecture.
    """
    nested = config.get("text_config")
    for source in (nested if isinstance(nested, dict) else {}, config):
        for field in _FIELDS:
            length = _tokens(source.get(field), _LARGEST)
            if length is not None:
                return max(length, _stretched(source))
    tokenizer = read_optional(folder / "tokenizer_config.json")
    length = _tokens(tokenizer.get("model_max_length"), _LARGEST_DECLARED_BY_TOKENIZER)
    return length or _library_default(text_module) or DEFAULT_CONTEXT


def _tokens(value: Any, largest: int) -> int | None:
    """The value, if it can be a number of tokens."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= largest:
        return None
    return value


def _stretched(config: Mapping[str, Any]) -> int:
    """The context after YaRN stretching; other kinds of scaling are part of the declared length already."""
    for scaling in _scalings(config):
        kind = scaling.get("rope_type", scaling.get("type"))
        original = _tokens(scaling.get("original_max_position_embeddings"), _LARGEST)
        factor = scaling.get("factor")
        if kind == "yarn" and original and isinstance(factor, int | float) and 1 <= factor <= 1024:
            return min(int(original * factor), _LARGEST)
    return 0


def _scalings(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Rope settings, which newer configurations keep per type of layer."""
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

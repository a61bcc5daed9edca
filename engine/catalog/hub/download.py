"""Download of a model that the operator named from the hub; honours `HF_ENDPOINT` and `HF_TOKEN`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from greenroom.engine.catalog.kinds.detection import detect
from greenroom.schemas.capabilities import ModelType
from greenroom.schemas.problems import ProblemError, load_failed

_PATTERNS = (
    "*.json",
    "tokenizer.model",
    "*.tiktoken",
    "tiktoken.model",
    "*.txt",
    "*.jsonl",
    "*.jinja",
)
"""File patterns of a model's metadata, except Python code; weight patterns depend on its type."""

_WEIGHTS = ("model*.safetensors",)
_ALL_WEIGHTS = ("*.safetensors", "*.npz", "*.model", "*.yaml")
"""Weight patterns of audio models, which have no naming rules and keep voices in subfolders."""
_WEIGHTS_BY_KIND: Mapping[ModelType, tuple[str, ...]] = {
    "embeddings": (*_WEIGHTS, "*_Dense/model.safetensors", "*_LayerNorm/model.safetensors"),
    "speech": _ALL_WEIGHTS,
    "transcription": _ALL_WEIGHTS,
}


def download(hub_id: str, trust_remote_code: bool = False, cache: Path | None = None) -> Path:
    """Download the files of a model that are not cached yet, and return its folder; blocks until done.

    Args:
        trust_remote_code: Whether to download the model's own Python code too.
        cache: Hub cache folder; None for the usual one.

    Raises:
        ProblemError: 503 `load_failed`.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    # Progress bars on stderr would break log parsers.
    disable_progress_bars()
    about = [*_PATTERNS, "*.py"] if trust_remote_code else list(_PATTERNS)

    def fetch(patterns: list[str]) -> Path:
        endpoint = os.environ.get("HF_ENDPOINT") or None
        return Path(snapshot_download(hub_id, allow_patterns=patterns, endpoint=endpoint, cache_dir=cache))

    try:
        return fetch([*about, *_weights_of(fetch(about), trust_remote_code, hub_id)])
    except Exception as error:  # the library passes on any error of its HTTP client and the disk
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ProblemError(load_failed(hub_id, f"downloading it failed: {reason}")) from error


def _weights_of(folder: Path, trust_remote_code: bool, name: str) -> tuple[str, ...]:
    """Return the weight file patterns of a model whose other files are downloaded."""
    try:
        kind = detect(folder, trust_remote_code, name).model_type
    except ProblemError:
        return _WEIGHTS
    return _WEIGHTS_BY_KIND.get(kind, _WEIGHTS)

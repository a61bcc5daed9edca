"""Fetching a model that the operator named from the hub; `HF_ENDPOINT` and `HF_TOKEN` are honoured."""

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
"""What tells of a model, but for Python code; its weights are chosen by its kind."""

_WEIGHTS = ("model*.safetensors",)
_ALL_WEIGHTS = ("*.safetensors", "*.npz", "*.model", "*.yaml")
"""Models that speak or hear call their files as they like, and have voices in folders."""
_WEIGHTS_BY_KIND: Mapping[ModelType, tuple[str, ...]] = {
    "embeddings": (*_WEIGHTS, "*_Dense/model.safetensors", "*_LayerNorm/model.safetensors"),
    "speech": _ALL_WEIGHTS,
    "transcription": _ALL_WEIGHTS,
}


def download(hub_id: str, trust_remote_code: bool = False, cache: Path | None = None) -> Path:
    """Download a model as far as it is not in the cache, and return its folder. Blocks until it is there.

    Args:
        trust_remote_code: Fetch the model's own Python code too.
        cache: The hub's cache folder, if it is not the usual one.

    Raises:
        ProblemError: 503 `load_failed`.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    # Progress bars would be lines on stderr that no log reader understands.
    disable_progress_bars()
    about = [*_PATTERNS, "*.py"] if trust_remote_code else list(_PATTERNS)

    def fetch(patterns: list[str]) -> Path:
        endpoint = os.environ.get("HF_ENDPOINT") or None
        return Path(snapshot_download(hub_id, allow_patterns=patterns, endpoint=endpoint, cache_dir=cache))

    try:
        return fetch([*about, *_weights_of(fetch(about), trust_remote_code, hub_id)])
    except Exception as error:  # the library passes on whatever its HTTP client and the disk raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ProblemError(load_failed(hub_id, f"downloading it failed: {reason}")) from error


def _weights_of(folder: Path, trust_remote_code: bool, name: str) -> tuple[str, ...]:
    """Return which files hold the weights of a model whose other files are here."""
    try:
        kind = detect(folder, trust_remote_code, name).model_type
    except ProblemError:
        return _WEIGHTS
    return _WEIGHTS_BY_KIND.get(kind, _WEIGHTS)

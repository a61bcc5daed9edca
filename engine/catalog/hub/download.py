"""Download of a model that the operator named from the hub; honours `HF_ENDPOINT` and `HF_TOKEN`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.hub.download_failures import describe_failure, is_unknown
from greenroom.engine.catalog.hub.hub_cache import hub_cache_folder
from greenroom.engine.catalog.kinds.detection import detect
from greenroom.schemas.download import Download
from greenroom.schemas.models.capabilities import ModelType
from greenroom.schemas.problems import ProblemError, load_failed, unknown_to_hub

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

_HUB = "https://huggingface.co"


def download(
    hub_id: str,
    trust_remote_code: bool = False,
    cache: Path | None = None,
    tell: Callable[[Download], None] | None = None,
    *,
    progress: bool = False,
) -> Path:
    """Download the files of a model that are not cached yet, and return its folder; blocks until done.

    Args:
        trust_remote_code: Whether to download the model's own Python code too.
        cache: Hub cache folder; None for the usual one.
        tell: Called before large files are downloaded, with their number and size.
        progress: Whether to show progress bars on stderr; without a terminal they would break log parsers.

    Raises:
        ProblemError: 404 `model_not_found` if the hub has no such model; else 503 `load_failed`.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    cache = hub_cache_folder() if cache is None else cache
    source = os.environ.get("HF_ENDPOINT") or _HUB
    about = [*_PATTERNS, "*.py"] if trust_remote_code else list(_PATTERNS)

    def fetch(patterns: list[str], **how: Any) -> Any:
        return snapshot_download(hub_id, allow_patterns=patterns, endpoint=source, cache_dir=cache, **how)

    disable_progress_bars()
    try:
        needed = [*about, *_weights_of(Path(fetch(about)), trust_remote_code, hub_id)]
        if tell is not None:
            missing = [file for file in fetch(needed, dry_run=True) if file.will_download]
            size = sum(file.file_size or 0 for file in missing)
            tell(Download(hub_id, len(missing), size, source, str(cache)))
            _check_room(cache, size)
        if progress and "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ:
            enable_progress_bars()
        return Path(fetch(needed))
    except Exception as error:  # the library passes on any error of its HTTP client and the disk
        failed = load_failed(hub_id, f"downloading it failed: {describe_failure(error, source)}")
        raise ProblemError(unknown_to_hub(failed) if is_unknown(error) else failed) from error


def _weights_of(folder: Path, trust_remote_code: bool, name: str) -> tuple[str, ...]:
    """Return the weight file patterns of a model whose other files are downloaded."""
    try:
        kind = detect(folder, trust_remote_code, name).model_type
    except ProblemError:
        return _WEIGHTS
    return _WEIGHTS_BY_KIND.get(kind, _WEIGHTS)


def _check_room(cache: Path, size: int) -> None:
    """Refuse a download that is larger than the free disk space, before it starts.

    Raises:
        OSError: The message gives both sizes.
    """
    free = shutil.disk_usage(cache).free
    if size > free:
        raise OSError(f"it has {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free where {cache} lies")

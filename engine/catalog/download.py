"""Fetching a model that the operator named from the hub; `HF_ENDPOINT` and `HF_TOKEN` are honoured."""

from __future__ import annotations

import os
from pathlib import Path

from greenroom.schemas.problems import ProblemError, load_failed

_PATTERNS = (
    "*.json",
    "model*.safetensors",
    "tokenizer.model",
    "*.tiktoken",
    "tiktoken.model",
    "*.txt",
    "*.jsonl",
    "*.jinja",
)
"""What mlx-lm downloads, but for Python code."""


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
    try:
        folder = snapshot_download(
            hub_id,
            allow_patterns=[*_PATTERNS, "*.py"] if trust_remote_code else list(_PATTERNS),
            endpoint=os.environ.get("HF_ENDPOINT") or None,
            cache_dir=cache,
        )
    except Exception as error:  # the library passes on whatever its HTTP client and the disk raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ProblemError(load_failed(hub_id, f"downloading it failed: {reason}")) from error
    return Path(folder)

"""Minimal folders that are detected as models."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from greenroom.tests.support.servers.hub_server import COMMIT


def make_model(folder: Path, written: float = 1_700_000_000, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    os.utime(folder / "config.json", (written, written))
    return folder


def make_cached(cache: Path, hub_id: str, commit: str = COMMIT, **config: Any) -> Path:
    root = cache / f"models--{hub_id.replace('/', '--')}"
    (root / "refs").mkdir(parents=True, exist_ok=True)
    (root / "refs" / "main").write_text(commit)
    return make_model(root / "snapshots" / commit, **config)

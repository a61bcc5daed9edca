"""What is known of models without trying: the table that ships with a release, and earlier loads' proofs."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import structlog

from greenroom.engine.kv_cache.batching import Batching

TABLE = Path(__file__).with_name("table.json")

_FILE_NAME = "greenroom-batching.json"
_MAX_REMEMBERED = 256
"""Proofs that a file keeps; the oldest go."""

_lock = threading.Lock()
_of_this_process: dict[str, Batching] = {}

log = structlog.get_logger(__name__)


@cache
def table() -> Mapping[str, Batching]:
    """Return what was proved of mlx-lm's architectures, by the digest of their code."""
    entries = json.loads(TABLE.read_text(encoding="utf-8"))["architectures"]
    return {entry["digest"]: _batching_of(entry) for entry in entries.values()}


def recall(key: str, folder: Path | None) -> Batching | None:
    """Return what an earlier load of this process, or one that used the same folder, has proved.

    Args:
        key: Of everything that the proof depends on.
        folder: Where the operator lets files survive a restart; None remembers for this process only.
    """
    with _lock:
        if key not in _of_this_process and folder is not None and key in (entries := _read(folder)):
            _of_this_process[key] = _batching_of(entries[key])
        return _of_this_process.get(key)


def remember(key: str, batching: Batching, folder: Path | None) -> None:
    """Keep what was proved for later loads."""
    with _lock:
        _of_this_process[key] = batching
        if folder is None:
            return
        entries = [*_read(folder).items(), (key, entry_of(batching))][-_MAX_REMEMBERED:]
        temporary = folder / f"{_FILE_NAME}.{os.getpid()}.tmp"
        try:
            temporary.write_text(json.dumps(dict(entries), indent=1), encoding="utf-8")
            temporary.replace(folder / _FILE_NAME)
        except OSError as error:
            log.warning("batching proof not kept", reason=str(error))


def entry_of(batching: Batching) -> dict[str, Any]:
    """Return the JSON of a proof."""
    reason = {"reason": batching.reason} if batching.reason else {}
    return {"prefill": batching.prefill, "decode": batching.decode, **reason}


def _batching_of(entry: Mapping[str, Any]) -> Batching:
    return Batching(entry["prefill"] is True, entry["decode"] is True, str(entry.get("reason", "")))


def _read(folder: Path) -> dict[str, Any]:
    """Return the entries of a folder's file; none if it cannot be read or is not ours."""
    try:
        entries = json.loads((folder / _FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(entries, dict):
        return {}
    return {
        key: entry
        for key, entry in entries.items()
        if isinstance(entry, dict) and {"prefill", "decode"} <= entry.keys()
    }

"""What is known of models without trying: the table that ships with a release, and earlier proofs."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog

from greenroom.engine.kv_cache.batching import Batching
from greenroom.engine.loading.batching.findings import Findings

TABLE = Path(__file__).with_name("table.json")

_FILE_NAME = "batching.json"
_MAX_REMEMBERED = 256
"""Proofs that the file keeps; the oldest go."""

_MAX_BYTES = 1_000_000
"""Of a file that may be ours; `_MAX_REMEMBERED` of the longest entries take half of it."""

_MAX_REASON = 1000
"""Characters of what a model's code says of itself."""

_lock = threading.Lock()
_of_this_process: dict[str, Findings] = {}

log = structlog.get_logger(__name__)


@cache
def table() -> Mapping[str, Findings]:
    """Return what was proved of mlx-lm's architectures, by the digest of their code."""
    entries = json.loads(TABLE.read_text(encoding="utf-8"))["architectures"]
    return {entry["digest"]: _findings_of(entry) for entry in entries.values()}


def recall(key: str) -> Findings:
    """Return what has been proved by this process or another of the same user, perhaps not all of it.

    Args:
        key: Of everything that the proof depends on.
    """
    with _lock:
        found = _of_this_process.get(key, Findings())
        if not found.complete:
            written = _still_valid(_read(_file()).get(key, {}))
            if written.decode is not None:
                found = _of_this_process[key] = written
        return found


def remember(key: str, findings: Findings) -> None:
    """Keep what was proved so far, for later loads and processes."""
    with _lock:
        _of_this_process[key] = findings
        file = _file()
        if file is None:
            return
        entries = _read(file)
        entries.pop(key, None)
        release = {"release": version("greenroom")} if _finds_fault(findings) else {}
        kept = [*entries.items(), (key, entry_of(findings) | release)][-_MAX_REMEMBERED:]
        temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(dict(kept), indent=1), encoding="utf-8")
            temporary.replace(file)
        except OSError as error:
            log.warning("batching proof not kept", reason=str(error))


def entry_of(proved: Batching | Findings) -> dict[str, Any]:
    """Return the JSON of a proof; what is not known is left out."""
    known = {"prefill": proved.prefill, "decode": proved.decode}
    reason = {"reason": proved.reason[:_MAX_REASON]} if proved.reason else {}
    return {name: value for name, value in known.items() if value is not None} | reason


def _findings_of(entry: Mapping[str, Any]) -> Findings:
    prefill, decode = (
        value if isinstance(value := entry.get(name), bool) else None for name in ("prefill", "decode")
    )
    return Findings(prefill, decode, str(entry.get("reason", ""))[:_MAX_REASON])


def _still_valid(entry: Mapping[str, Any]) -> Findings:
    """Return what was found, but leave out what an earlier release found wrong: this one may know better."""
    found = _findings_of(entry)
    if not _finds_fault(found) or entry.get("release") == version("greenroom"):
        return found
    return Findings(None, True) if found.decode else Findings()


def _finds_fault(findings: Findings) -> bool:
    return False in (findings.prefill, findings.decode)


def _file() -> Path | None:
    """Return where proofs are kept, in the user's cache folder; None if the user has none."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(os.path.expanduser(base), "greenroom")
    return folder / _FILE_NAME if folder.is_absolute() else None


def _read(file: Path | None) -> dict[str, Any]:
    """Return the entries of the file; none if it cannot be read or is not ours."""
    try:
        if file is None or not file.is_file() or file.stat().st_size > _MAX_BYTES:
            return {}
        entries = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(entries, dict):
        return {}
    return {key: entry for key, entry in entries.items() if isinstance(entry, dict) and "decode" in entry}

"""Known results of batch-invariance checks: the table shipped with a release, and cached results."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from greenroom.engine.kv_cache.batching import Batching
from greenroom.engine.loading.batching.check_results import CheckResults
from greenroom.schemas.logs import get_logger

TABLE = Path(__file__).with_name("table.json")

_FILE_NAME = "batching.json"
_MAX_RESULTS = 256
"""Most results in the file; the oldest are dropped."""

_MAX_BYTES = 1_000_000
"""Size limit of the file in bytes; `_MAX_RESULTS` of the longest entries take half of it."""

_MAX_REASON = 1000
"""Most characters of a stored reason, which may contain messages of a model's code."""

_lock = threading.Lock()
_of_this_process: dict[str, CheckResults] = {}

log = get_logger(__name__)


@cache
def table() -> Mapping[str, CheckResults]:
    """Return the results for mlx-lm's architectures, by code digest."""
    entries = json.loads(TABLE.read_text(encoding="utf-8"))["architectures"]
    return {entry["digest"]: _results_of(entry) for entry in entries.values()}


def load_results(key: str) -> CheckResults:
    """Return the cached results, possibly incomplete, of this or another process of the same user.

    Args:
        key: Hash of everything the check depends on.
    """
    with _lock:
        found = _of_this_process.get(key, CheckResults())
        if not found.complete:
            written = _still_valid(_read(_file()).get(key, {}))
            if written.decode is not None:
                found = _of_this_process[key] = written
        return found


def store_results(key: str, results: CheckResults) -> None:
    """Store the results so far for later loads and processes."""
    with _lock:
        _of_this_process[key] = results
        file = _file()
        if file is None:
            return
        entries = _read(file)
        entries.pop(key, None)
        release = {"release": version("greenroom")} if _has_fault(results) else {}
        kept = [*entries.items(), (key, as_entry(results) | release)][-_MAX_RESULTS:]
        temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(dict(kept), indent=1), encoding="utf-8")
            temporary.replace(file)
        except OSError as error:
            log.warning("batching proof not kept", reason=str(error))


def as_entry(proved: Batching | CheckResults) -> dict[str, Any]:
    """Return the results as JSON, without unknown values."""
    known = {"prefill": proved.prefill, "decode": proved.decode}
    reason = {"reason": proved.reason[:_MAX_REASON]} if proved.reason else {}
    return {name: value for name, value in known.items() if value is not None} | reason


def _results_of(entry: Mapping[str, Any]) -> CheckResults:
    prefill, decode = (
        value if isinstance(value := entry.get(name), bool) else None for name in ("prefill", "decode")
    )
    return CheckResults(prefill, decode, str(entry.get("reason", ""))[:_MAX_REASON])


def _still_valid(entry: Mapping[str, Any]) -> CheckResults:
    """Parse a stored result, but ignore faults found by another release, which may have been fixed since."""
    found = _results_of(entry)
    if not _has_fault(found) or entry.get("release") == version("greenroom"):
        return found
    return CheckResults(None, True) if found.decode else CheckResults()


def _has_fault(results: CheckResults) -> bool:
    return False in (results.prefill, results.decode)


def _file() -> Path | None:
    """Return the path of the results file in the user's cache folder; None if there is no such folder."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(os.path.expanduser(base), "greenroom")
    return folder / _FILE_NAME if folder.is_absolute() else None


def _read(file: Path | None) -> dict[str, Any]:
    """Return the entries of the file; none if it cannot be read or is invalid."""
    try:
        if file is None or not file.is_file() or file.stat().st_size > _MAX_BYTES:
            return {}
        entries = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(entries, dict):
        return {}
    return {key: entry for key, entry in entries.items() if isinstance(entry, dict) and "decode" in entry}

"""Known results of batch-invariance checks: the table shipped with a release, and cached results."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import sys
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.kv_cache.caches import Batching
from greenroom.schemas.logs import get_logger

TABLE = Path(__file__).with_name("batching_table.json")

_FILE_NAME = "batching.json"
_MAX_RESULTS = 256  # Most results in the file; the oldest are dropped

_MAX_BYTES = 1_000_000
"""Size limit of the file in bytes; `_MAX_RESULTS` of the longest entries take half of it."""

_MAX_REASON = 1000  # Most characters of a stored reason, which may contain messages of a model's code

_lock = threading.Lock()
_of_this_process: dict[str, CheckResults] = {}

log = get_logger(__name__)


@cache
def table() -> Mapping[str, CheckResults]:
    """Return the results for mlx-lm's architectures, by code digest."""
    entries = json.loads(TABLE.read_text(encoding="utf-8"))["architectures"]
    return {entry["digest"]: _results_of(entry) for entry in entries.values()}


def load_results(key: str) -> CheckResults:
    """Return the cached results, possibly incomplete, of this or another process of the same user."""
    with _lock:
        found = _of_this_process.get(key, CheckResults())
        if not found.complete:
            written = _still_valid(_read(_file()).get(key, {}))
            if written.decode is not None:
                found = _of_this_process[key] = written
        return found


def store_results(key: str, results: CheckResults) -> None:
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


_UNPROVED = "not proved yet"


@attrs.frozen
class CheckResults:
    """Results of a check whether batched rows match rows computed alone; None where unknown.

    Args:
        prefill: Whether prompts of unequal length may be prefilled in one pass.
        decode: Whether sequences of unequal length may be decoded in one step.
    """

    prefill: bool | None = None
    decode: bool | None = None
    reason: str = ""

    @property
    def complete(self) -> bool:
        """True if nothing is left to check; without batched decode there is no batched prefill either."""
        return self.decode is False or (self.decode is True and self.prefill is not None)

    @property
    def batching(self) -> Batching:
        """Kinds of batching that the check has found correct; what it has not checked yet is not batched."""
        decode = self.decode is True
        reason = self.reason or ("" if self.complete else _UNPROVED)
        return Batching(decode and self.prefill is True, decode, reason)


_MODELS = "mlx_lm.models"
_ALWAYS = ("base", "cache")  # Files that every model uses, whether it imports them or not

_IMPORT = re.compile(rf"^\s*from (?:{re.escape(_MODELS)})?\.?(\w*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_FOR_A_DEVICE = re.compile(r"metal_kernel|cuda_kernel|default_device|is_available|\.kernels\b")
"""Pattern of code that runs on some devices only; `mlx_lm.kernels` are Metal kernels."""

_PATCHES = "batching_patches*"
_LOADING = Path(__file__).parent


def code_digest(model: Any) -> str | None:
    """Return the digest of a model's code and our patches, 32 hexadecimal digits; None for unknown code.

    Args:
        model: Model, of which the architecture's file and its imports from mlx-lm's models are hashed. A
            model of another library supplies its own `code_digest`.
    """
    package, _, name = type(model).__module__.rpartition(".")
    digest: str | None = getattr(model, "code_digest", None)
    return digest_of(name) if package == _MODELS else digest


@cache
def digest_of(name: str) -> str:
    """Return the digest of an architecture, given the name of its file in mlx-lm's models."""
    return digest_of_files([*sources_of(name), *_patches()])


def branches_by_device(model: Any) -> bool:
    """Return whether some of the code that `code_digest` covers depends on the device."""
    return _any_branches(type(model).__module__.rpartition(".")[2])


@cache
def _any_branches(name: str) -> bool:
    sources = [*sources_of(name), *_patches()]
    return any(_FOR_A_DEVICE.search(path.read_text(encoding="utf-8")) for path in sources)


def patches_digest() -> str:
    return digest_of_files(_patches())


@cache
def digest_of_module(module: str) -> str:
    source = sys.modules[module].__file__
    return digest_of_files([Path(source)]) if source else ""


def sources_of(name: str) -> list[Path]:
    """Return the file of an architecture and those it imports, recursively."""
    folder = Path(importlib.import_module(_MODELS).__path__[0])
    found: set[str] = set()
    pending = {name, *_ALWAYS}
    while pending:
        found |= pending
        texts = [(folder / f"{stem}.py").read_text(encoding="utf-8") for stem in pending]
        pending = {stem for text in texts for stem in _imported(text) if (folder / f"{stem}.py").exists()}
        pending -= found
    return [folder / f"{stem}.py" for stem in sorted(found)]


def digest_of_files(paths: Iterable[Path]) -> str:
    """Return the digest of files' names and contents, in order, 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def _patches() -> list[Path]:
    found = [path for pattern in (f"{_PATCHES}.py", f"{_PATCHES}/*.py") for path in _LOADING.glob(pattern)]
    return sorted(found)


def _imported(text: str) -> set[str]:
    names: set[str] = set()
    for module, members in _IMPORT.findall(text):
        names |= {module} if module else set(re.findall(r"\w+", members))
    return names

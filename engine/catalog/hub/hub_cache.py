"""Models in Hugging Face's cache folder, found without importing its library, which takes half a second."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from greenroom.engine.catalog.kind_detection import audio_kind, name_by_fields
from greenroom.engine.catalog.libraries import text_module
from greenroom.engine.catalog.load_failures import ADAPTER_CONFIG, READ_ADAPTERS
from greenroom.engine.catalog.model_files import read_optional, read_regular

HUB_ID = re.compile(r"(?!.*(--|\.\.))[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
"""Pattern of hub ids, `owner/name`; a match cannot lead out of the cache folder."""

_MAX_REFERENCE_BYTES = 1_000
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "tiktoken.model", "vocab.json")


def hub_cache_folder() -> Path:
    """Return the hub's cache folder, located as huggingface_hub does."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return Path(os.path.expandvars(named)).expanduser()
    home = os.environ.get("HF_HOME")
    if not home:
        home = os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.path.expandvars(home)).expanduser() / "hub"


def find_cached_model(hub_id: str, cache: Path, *, adapter: bool = False) -> Path | None:
    """Return the folder of the newest complete snapshot of a model, or of a LoRA adapter, if it is cached."""
    if not HUB_ID.fullmatch(hub_id):
        return None
    found = filter(_is_adapter if adapter else is_complete, _snapshots(model_folder(hub_id, cache)))
    return next(found, None)


def _is_adapter(folder: Path) -> bool:
    has = [(folder / name).is_file() for name in ("config.json", ADAPTER_CONFIG, *READ_ADAPTERS)]
    return not has[0] and has[1] and any(has[2:])


def model_folder(hub_id: str, cache: Path) -> Path:
    """Return the folder of a model in a cache, with its snapshots and blobs."""
    return cache / f"models--{hub_id.replace('/', '--')}"


def list_cached_ids(cache: Path) -> list[str]:
    """Return the hub ids of all cached models, complete or not, sorted by name."""
    try:
        names = sorted(os.listdir(cache))
    except OSError:
        return []
    ids = (
        name.removeprefix("models--").replace("--", "/", 1) for name in names if name.startswith("models--")
    )
    return [hub_id for hub_id in ids if HUB_ID.fullmatch(hub_id)]


def is_complete(folder: Path) -> bool:
    """Return whether configuration, tokenizer and all weight files are present.

    Audio models need no tokenizer, and their weight files have no naming rules.
    """
    if not (folder / "config.json").is_file():
        return False
    if _is_audio(folder):
        unfinished = any((folder.parents[1] / "blobs").glob("*.incomplete"))
        return not unfinished and any(path.is_file() for path in _weight_files(folder))
    if not any((folder / name).is_file() for name in TOKENIZERS):
        return False
    shards = read_optional(folder / "model.safetensors.index.json").get("weight_map")
    if isinstance(shards, dict) and shards:
        return all(isinstance(name, str) and (folder / name).is_file() for name in set(shards.values()))
    return any(path.is_file() for path in folder.glob("model*.safetensors"))


def _is_audio(folder: Path) -> bool:
    config = read_optional(folder / "config.json")
    architecture = str(name_by_fields(config) or config.get("model_type"))
    return text_module(architecture) is None and audio_kind(architecture, config) is not None


def _weight_files(folder: Path) -> Iterator[Path]:
    yield from folder.glob("*.safetensors")
    yield from folder.glob("*.npz")


def _snapshots(root: Path) -> Iterator[Path]:
    try:
        main = read_regular(root / "refs" / "main", _MAX_REFERENCE_BYTES).decode("ascii").strip()
        if re.fullmatch(r"[0-9a-fA-F]{1,64}", main):
            yield root / "snapshots" / main
    except (OSError, ValueError):
        pass
    try:
        yield from sorted((root / "snapshots").iterdir(), key=_age)
    except OSError:
        return


def _age(folder: Path) -> float:
    try:
        return -folder.stat().st_mtime
    except OSError:
        return 0.0


_NAME = ".greenroom-unprobed"


def mark_for_probe(hub_id: str) -> None:
    """Let the model's first load in a server be followed by a probe; without effect if it is not cached."""
    with contextlib.suppress(OSError):
        _mark(hub_id).touch()


def is_marked(hub_id: str) -> bool:
    """Return whether a model's next load in a server is followed by a probe."""
    return bool(HUB_ID.fullmatch(hub_id)) and _mark(hub_id).exists()


def unmark(hub_id: str) -> bool:
    """Remove a model's mark, and return whether it had one."""
    if not HUB_ID.fullmatch(hub_id):
        return False
    try:
        _mark(hub_id).unlink()
    except OSError:
        return False
    return True


def _mark(hub_id: str) -> Path:
    return model_folder(hub_id, hub_cache_folder()) / _NAME

"""What rows of a loaded model may be computed together: known of its code, or proved with its weights."""

from __future__ import annotations

import hashlib
import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.batching import Batching
from greenroom.engine.loading.batching.digest import code_digest, patches_digest
from greenroom.engine.loading.batching.known import recall, remember, table
from greenroom.engine.loading.batching.proof import prove
from greenroom.schemas.settings import Settings

_SHARE_OF_LOAD = 0.05
_SHORTEST = 0.25
"""Seconds that a proof may take however short the load was."""

_CONFIG = "config.json"
_COMPUTED_BY = ("mlx", "mlx-lm")
"""Libraries of which another version may compute otherwise."""

log = structlog.get_logger(__name__)


def decide_batching(model: Any, folder: Path, settings: Settings, load_seconds: float) -> Batching:
    """Return what rows of a model may be computed together, and log what may not.

    Args:
        model: With its weights in memory, and patched.
        load_seconds: That it took to load, of which a proof takes a small share.
    """
    if not caches.can_batch(caches.new_cache(model)):
        batching, known_by = Batching(False, False, "its caches cannot be merged"), "cache"
    else:
        batching, known_by = _known(model, folder, settings) or _proved(model, folder, settings, load_seconds)
    if not batching.prefill:
        log.warning(
            "rows are computed alone",
            model=folder.name,
            prefill="alone",
            decode="together" if batching.decode else "alone",
            reason=batching.reason,
            known_by=known_by,
        )
    return batching


def _known(model: Any, folder: Path, settings: Settings) -> tuple[Batching, str] | None:
    digest = code_digest(model)
    if digest is not None and (known := table().get(digest)) is not None:
        return known, "table"
    remembered = recall(_key(model, folder), _kept_in(settings))
    return None if remembered is None else (remembered, "earlier proof")


def _proved(model: Any, folder: Path, settings: Settings, load_seconds: float) -> tuple[Batching, str]:
    began = time.perf_counter()
    batching, complete = prove(model, max(_SHARE_OF_LOAD * load_seconds, _SHORTEST))
    seconds = round(time.perf_counter() - began, 3)
    log.info("batching proved", model=folder.name, seconds=seconds, load_seconds=round(load_seconds, 3))
    if complete:
        remember(_key(model, folder), batching, _kept_in(settings))
    return batching, "proof"


def _key(model: Any, folder: Path) -> str:
    """Return a hash of what a proof depends on: the code, the sizes in config.json, and the libraries."""
    config = (folder / _CONFIG).read_bytes()
    digest = hashlib.blake2b(config, digest_size=16)
    digest.update(json.dumps([version(name) for name in _COMPUTED_BY]).encode())
    code = code_digest(model)
    if code is None:
        model_file = json.loads(config).get("model_file")
        digest.update((folder / model_file).read_bytes() if model_file else b"")
        code = patches_digest()
    digest.update(code.encode())
    return digest.hexdigest()


def _kept_in(settings: Settings) -> Path | None:
    """Return the folder of the operator's in which files survive a restart, if there is one."""
    folder = settings.prefix_cache_dir
    return None if folder is None else Path(folder).expanduser()

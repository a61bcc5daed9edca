"""Decision whether a loaded model's rows may be batched, from known code or from a check with its weights."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.catalog.files.regular_files import MAX_CONFIG_BYTES, read_regular
from greenroom.engine.device.device_information import gpu_architecture
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.batching import restrict
from greenroom.engine.loading.batching.background_check import BackgroundCheck, log_restriction, log_results
from greenroom.engine.loading.batching.cached_results import load_results, store_results, table
from greenroom.engine.loading.batching.check_results import CheckResults
from greenroom.engine.loading.batching.digest import branches_by_device, code_digest, patches_digest
from greenroom.engine.loading.batching.invariance_check import InvarianceCheck

SHARE_OF_LOAD = 0.05
"""Largest share of the load time that the batch-invariance check may take."""
MIN_SECONDS = 0.1
"""Seconds that the check may take after even the shortest load, too few to notice."""

_CONFIG = "config.json"
_COMPUTED_BY = ("mlx", "mlx-lm", "mlx-vlm")
"""Libraries whose version may change the results."""


def decide_batching(
    model: Any, folder: Path, load_seconds: float, first_pass: float
) -> BackgroundCheck | None:
    """Enable batching as far as it is known to be correct for a model, and log any restriction.

    Args:
        model: Patched model with its weights in memory.
        load_seconds: Load time in seconds, a small share of which the check may take.
        first_pass: Seconds of the load that the forward pass of one token took.

    Returns:
        The rest of the check, if there was no time for it.
    """
    rest = None
    digest = code_digest(model)
    if not caches.can_batch(caches.new_cache(model)):
        found, known_by = CheckResults(False, False, "its caches cannot be merged"), "cache"
    elif digest is not None and digest in table() and _table_holds(model):
        found, known_by = table()[digest], "table"
    else:
        key = _key(model, folder)
        found, known_by = load_results(key), "earlier proof"
        if not found.complete:
            known_by = "proof"
            check = InvarianceCheck(model, found, first_pass)
            check.run(max(SHARE_OF_LOAD * load_seconds, MIN_SECONDS))
            if check.results != found:
                found = check.results
                if not check.failed:
                    store_results(key, found)
                figures = {"seconds": round(check.seconds, 3), "load_seconds": round(load_seconds, 3)}
                log_results(found.batching, **figures)
            rest = None if found.complete else BackgroundCheck(model, check, key)
    restrict(model, found.batching)
    log_restriction(found.batching, known_by)
    return rest


def _table_holds(model: Any) -> bool:
    """Return whether this device runs the same code as the CPU for which the table was made.

    On a Mac's GPU, architectures may use Metal kernels of their own; CUDA runs the same code as the CPU.
    """
    on_metal = gpu_architecture() is not None and mx.metal.is_available()
    return not (on_metal and branches_by_device(model))


def _key(model: Any, folder: Path) -> str:
    """Return a hash of everything a check depends on: code, config.json, libraries and device."""
    config = read_regular(folder / _CONFIG, MAX_CONFIG_BYTES)
    digest = hashlib.blake2b(config, digest_size=16)
    digest.update(json.dumps([*map(version, _COMPUTED_BY), gpu_architecture()]).encode())
    code = code_digest(model)
    if code is None:
        model_file = json.loads(config).get("model_file")
        digest.update((folder / model_file).read_bytes() if model_file else b"")
        code = patches_digest()
    digest.update(code.encode())
    return digest.hexdigest()

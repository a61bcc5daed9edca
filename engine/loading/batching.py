"""Decision whether a loaded model's rows may be batched, from known code or from a check with its weights."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.catalog.model_files import MAX_CONFIG_BYTES, read_regular
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Batching, restrict
from greenroom.engine.loading.batching_table import (
    CheckResults,
    branches_by_device,
    code_digest,
    load_results,
    patches_digest,
    store_results,
    table,
)
from greenroom.engine.loading.invariance_check import InvarianceCheck
from greenroom.engine.resources.device_errors import gpu_architecture
from greenroom.schemas.logs import get_logger

SHARE_OF_LOAD = 0.05  # Largest share of the load time that the batch-invariance check may take
MIN_SECONDS = 0.1  # Seconds that the check may take after even the shortest load, too few to notice

_CONFIG = "config.json"
_COMPUTED_BY = ("mlx", "mlx-lm", "mlx-vlm")  # Libraries whose version may change the results


def decide_batching(
    model: Any, folder: Path, load_seconds: float, first_pass: float
) -> BackgroundCheck | None:
    """Enable batching as far as it is known to be correct for a model, and log any restriction.

    Args:
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


PIECE = 0.3  # Time limit in seconds of a divisible pass, and so of the delay that it may cause to a request

MAX_PASS_SECONDS = 10.0
"""Time limit in seconds of an indivisible pass (batched prefill, four rows of 27 tokens). A machine that
needs longer gains nothing from batched prefill.
"""

_REST = 5
"""Idle time required before a pass, as a multiple of its duration, so that few requests arrive during a pass.
The multiple grows in proportion for passes longer than `PIECE`.
"""

log = get_logger(__name__)


class BackgroundCheck:
    """Runs the check one pass at a time, and lifts the model's restriction once batching proves correct.
    `model`: model whose rows are computed alone until more is known.
    """

    def __init__(self, model: Any, check: InvarianceCheck, key: str) -> None:
        self._model = model
        self._check = check
        self._key = key
        self._over = False

    @property
    def delay(self) -> float | None:
        """Seconds of idleness before the next pass; None if there is nothing left to do."""
        seconds = self._check.predict(PIECE)
        return None if self._over else _REST * seconds * max(1.0, seconds / PIECE)

    def advance(self) -> None:
        """Compute one pass; no sequence of the model may be running."""
        before = self._check.results
        self._check.advance(PIECE)
        found, batching = self._check.results, self._check.results.batching
        if found != before:
            restrict(self._model, batching)
            log_results(batching, seconds=round(self._check.seconds, 3), idle=True)
            if not self._check.failed:
                store_results(self._key, found)
        due = self._check.predict(PIECE)
        if not found.complete and due > MAX_PASS_SECONDS:
            batching = attrs.evolve(batching, reason=f"the next pass of its check would take {due:.1f} s")
        elif not found.complete:
            return
        self._over = True
        self.pause()
        log_restriction(batching, "proof")

    def pause(self) -> None:
        self._check.pause()


def log_results(batching: Batching, **figures: Any) -> None:
    log.info("batching proved", **_words(batching), **figures)


def log_restriction(batching: Batching, known_by: str) -> None:
    if not batching.prefill:
        reason = {"reason": batching.reason, "known_by": known_by}
        log.warning("rows are computed alone", **_words(batching), **reason)


def _words(batching: Batching) -> dict[str, str]:
    words = {True: "together", False: "alone"}
    return {"prefill": words[batching.prefill], "decode": words[batching.decode]}

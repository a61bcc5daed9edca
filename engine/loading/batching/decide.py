"""What rows of a loaded model may be computed together: known of its code, or proved with its weights."""

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
from greenroom.engine.loading.batching.digest import branches_by_device, code_digest, patches_digest
from greenroom.engine.loading.batching.findings import Findings
from greenroom.engine.loading.batching.idle_proof import IdleProof, log_proof, log_restriction
from greenroom.engine.loading.batching.known import recall, remember, table
from greenroom.engine.loading.batching.proof import Proof

SHARE_OF_LOAD = 0.05
"""What a proof may take of the time that a model took to load."""
MIN_SECONDS = 0.1
"""What it may take however short the load was, which nobody notices."""

_CONFIG = "config.json"
_COMPUTED_BY = ("mlx", "mlx-lm", "mlx-vlm")
"""Libraries of which another version may compute otherwise."""


def decide_batching(model: Any, folder: Path, load_seconds: float, first_pass: float) -> IdleProof | None:
    """Have rows of a model computed together as far as that is known to be right, and log what may not.

    Args:
        model: With its weights in memory, and patched.
        load_seconds: That it took to load, of which a proof takes a small share.
        first_pass: Seconds of them that one token took.

    Returns:
        The rest of the proof, if there was no time for it.
    """
    rest = None
    digest = code_digest(model)
    if not caches.can_batch(caches.new_cache(model)):
        found, known_by = Findings(False, False, "its caches cannot be merged"), "cache"
    elif digest is not None and digest in table() and _table_holds(model):
        found, known_by = table()[digest], "table"
    else:
        key = _key(model, folder)
        found, known_by = recall(key), "earlier proof"
        if not found.complete:
            known_by = "proof"
            proof = Proof(model, found, first_pass)
            proof.run(max(SHARE_OF_LOAD * load_seconds, MIN_SECONDS))
            if proof.findings != found:
                found = proof.findings
                if not proof.failed:
                    remember(key, found)
                figures = {"seconds": round(proof.seconds, 3), "load_seconds": round(load_seconds, 3)}
                log_proof(found.batching, **figures)
            rest = None if found.complete else IdleProof(model, proof, key)
    restrict(model, found.batching)
    log_restriction(found.batching, known_by)
    return rest


def _table_holds(model: Any) -> bool:
    """Return whether this device runs the code that the table was made with, on a CPU.

    A Mac's GPU takes kernels of its own where an architecture's code has them; CUDA takes what the CPU does.
    """
    on_metal = gpu_architecture() is not None and mx.metal.is_available()
    return not (on_metal and branches_by_device(model))


def _key(model: Any, folder: Path) -> str:
    """Return a hash of what a proof depends on: code, sizes in config.json, libraries, and the device."""
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

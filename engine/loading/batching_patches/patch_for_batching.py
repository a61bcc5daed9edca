"""Patches to models of mlx-lm that cannot compute several rows at once as they are."""

from __future__ import annotations

from typing import Any

import structlog

from greenroom.engine.kv_cache import caches
from greenroom.engine.loading.batching_patches.batching_trial import disable_batching, try_batch
from greenroom.engine.loading.batching_patches.known_faults import KNOWN_FAULTS, source_digest

log = structlog.get_logger(__name__)


def patch_for_batching(model: Any) -> None:
    """Patch what is known to be wrong; a model that still fails with several rows decodes each by itself.

    Args:
        model: One of mlx-lm's, with its weights in memory.
    """
    mend_known_faults(model)
    if not caches.can_batch(caches.new_cache(model)):
        return
    try:
        try_batch(model)
    except Exception as error:  # models fail in ways of their own
        log.warning("sequences do not share batches", error=str(error))
        disable_batching(model)


def mend_known_faults(model: Any) -> bool:
    """Patch a model whose architecture's file is one that is known to be wrong; return whether it is.

    A file that is not exactly that one is left as it is: it may be mended.
    """
    architecture = type(model).__module__
    fault = KNOWN_FAULTS.get(architecture.rpartition(".")[2])
    if fault is None or source_digest(architecture) != fault.digest:
        return False
    fault.mend(model)
    return True

"""Patches to models of mlx-lm that compute several rows otherwise than each alone."""

from __future__ import annotations

from typing import Any

from greenroom.engine.loading.batching.digest import digest_of_module
from greenroom.engine.loading.batching_patches.known_faults import KNOWN_FAULTS


def patch_for_batching(model: Any) -> bool:
    """Patch a model whose architecture's file is one that is known to be wrong; return whether it is.

    A file that is not exactly that one is left as it is: it may be mended.

    Args:
        model: One of mlx-lm's, with its weights in memory.
    """
    architecture = type(model).__module__
    fault = KNOWN_FAULTS.get(architecture.rpartition(".")[2])
    if fault is None or digest_of_module(architecture) != fault.digest:
        return False
    fault.mend(model)
    return True

"""Patches for mlx-lm models that compute a row in a batch otherwise than alone."""

from __future__ import annotations

from typing import Any

from greenroom.engine.loading.batching.digest import digest_of_module
from greenroom.engine.loading.batching_patches.known_faults import KNOWN_FAULTS


def patch_for_batching(model: Any) -> bool:
    """Patch a model whose architecture has a known fault; return whether it has one.

    A file with another digest is not patched, because a newer release may have mended it.

    Args:
        model: One of mlx-lm's, with its weights in memory.
    """
    architecture = type(model).__module__
    fault = KNOWN_FAULTS.get(architecture.rpartition(".")[2])
    if fault is None or digest_of_module(architecture) != fault.digest:
        return False
    fault.mend(model)
    return True

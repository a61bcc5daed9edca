"""The context for which a model's memory suffices, computed from its files."""

from __future__ import annotations

from pathlib import Path

import attrs

from greenroom.engine.loading.load_size import load_size
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.settings.settings import Settings


def practical_context(
    folder: Path, record: CapabilityRecord, settings: Settings, limit: int | None
) -> int | None:
    """Return the longest context of a single request that fits into memory beside the weights, in tokens.

    It is at most the model's own.

    Args:
        limit: Bytes that all models may have together; None if unknown.

    Returns:
        The context; None if the limit or the model's size is unknown.
    """
    if limit is None:
        return None
    unlimited = attrs.evolve(settings, kv_cache_bytes=None)
    kv_limit = limit if settings.kv_cache_bytes is None else settings.kv_cache_bytes

    def fits(tokens: int) -> bool:
        size = load_size(folder, record, unlimited, tokens=tokens)
        return size.total <= limit and size.cache <= kv_limit

    least, most = 0, min(record.context, settings.max_context or record.context)
    try:
        if fits(most):
            return most
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if fits(middle) else (least, middle)
    except (OSError, ValueError):
        return None
    return least

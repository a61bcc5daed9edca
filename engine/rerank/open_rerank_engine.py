"""Opening a model that ranks: its weights within the memory there is, and what computes with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from greenroom.engine.encoders.encoder_engine import EncoderEngine
from greenroom.engine.memory.account import MemoryAccount
from greenroom.engine.memory.weights import charge_weights
from greenroom.engine.rerank.load_reranker import load_reranker
from greenroom.schemas.capabilities import CapabilityRecord
from greenroom.schemas.settings import Settings


def open_rerank_engine(
    folder: Path,
    _record: CapabilityRecord,
    settings: Settings,
    progress: Callable[[float], None],
    is_abandoned: Callable[[], bool],
    account: MemoryAccount | None = None,
) -> EncoderEngine:
    """Load a model's weights, confined to this thread.

    Args:
        progress: Called with the fraction of the weights that are in memory, 0 to 1.
        is_abandoned: Called between chunks of the weights; returns whether to stop.
        account: Of memory, shared by all models of the process; None is one of its own.

    Raises:
        ProblemError: 503 `load_failed`; 507: there is not enough memory for the weights.
        LoadAbandonedError: `is_abandoned` returned True.
    """
    account = account or MemoryAccount(settings.memory_bytes, settings.kv_cache_bytes)
    share = account.open_share()
    charge = partial(charge_weights, account, share, folder.name)
    try:
        return EncoderEngine(load_reranker(folder, settings, progress, is_abandoned, charge), share)
    except BaseException:
        share.close()
        raise

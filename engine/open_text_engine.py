"""Opening a text model: its weights within the memory there is, and everything that generates with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from greenroom.engine.loading.batching.idle_proof import IdleProof
from greenroom.engine.loading.load_model import load_model, load_text_lazily
from greenroom.engine.memory.account import MemoryAccount
from greenroom.engine.memory.weights import charge_weights
from greenroom.engine.prefix_cache.disk.tier import open_disk_tier
from greenroom.engine.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.scheduler.prefill.prefill_policy import PrefillPolicy
from greenroom.engine.sequences.prompt_features import FeatureSource
from greenroom.engine.text_engine import TextEngine
from greenroom.schemas.capabilities import CapabilityRecord
from greenroom.schemas.settings import Settings

log = structlog.get_logger(__name__)


def open_text_engine(
    folder: Path,
    record: CapabilityRecord,
    settings: Settings,
    progress: Callable[[float], None],
    is_abandoned: Callable[[], bool],
    account: MemoryAccount | None = None,
    load_lazily: Callable[[Path, Settings], Any] = load_text_lazily,
    features_of: Callable[[Any], FeatureSource | None] = lambda model: None,
) -> TextEngine:
    """Load a model's weights and everything that generates with them, all confined to this thread.

    Args:
        progress: Called with the fraction of the weights that are in memory, 0 to 1.
        is_abandoned: Called between chunks of the weights; returns whether to stop.
        account: Of memory, shared by all models of the process; None is one of its own.
        load_lazily: Returns the model with weights that are named, but not read.
        features_of: Returns what gives its prompts features beside their tokens.

    Raises:
        ProblemError: 503 `load_failed`; 507: there is not enough memory for the weights.
        LoadAbandonedError: `is_abandoned` returned True.
    """
    from greenroom.engine.adapters.make_adapter import make_adapter
    from greenroom.engine.speculation.loading import load_speculation
    from greenroom.engine.tokenizer.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(folder, settings.trust_remote_code)
    adapter = make_adapter(record, tokenizer, settings)
    log.info("thinking", model=folder.name, **adapter.thinking.describe())
    prefill_policy = PrefillPolicy(max_stall=settings.max_stall, min_chunk=settings.min_prefill_chunk)
    account = account or MemoryAccount(settings.memory_bytes, settings.kv_cache_bytes)
    share = account.open_share()
    charge = partial(charge_weights, account, share, folder.name)
    try:
        unproved: list[IdleProof] = []
        model = load_model(folder, settings, progress, is_abandoned, charge, unproved.append, load_lazily)
        prefix_cache = None
        if settings.prefix_cache_bytes:
            prefix_cache = PrefixCache(settings.prefix_cache_bytes, open_disk_tier(folder, settings, model))
        speculation = load_speculation(model, tokenizer, settings, is_abandoned, charge)
        return TextEngine(
            model,
            adapter,
            prefill_policy,
            prefix_cache=prefix_cache,
            close_timeout=settings.shutdown_timeout / 4,
            speculation=speculation,
            share=share,
            max_rows=settings.max_batch,
            idle_proof=unproved[0] if unproved else None,
            features=features_of(model),
        )
    except BaseException:
        share.close()
        raise

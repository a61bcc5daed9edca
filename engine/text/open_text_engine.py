"""Opening of a text model: loads its weights within available memory and creates its engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenroom.engine.loading.batching.background_check import BackgroundCheck
from greenroom.engine.loading.load_model import load_model, load_text_lazily
from greenroom.engine.memory.model_load import ModelLoad
from greenroom.engine.text.explanation.prompt_history import PromptHistory
from greenroom.engine.text.prefix_cache.disk.tier import open_disk_tier
from greenroom.engine.text.prefix_cache.host_tier import open_host_tier
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.scheduler.prefill.prefill_policy import PrefillPolicy
from greenroom.engine.text.sequences.prompt_features import FeatureSource
from greenroom.engine.text.text_engine import TextEngine
from greenroom.schemas.logs import get_logger
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.engine.adapters.adapter import Adapter

log = get_logger(__name__)


def open_text_engine(
    load: ModelLoad,
    adapter: Adapter,
    load_lazily: Callable[[Path, Settings], Any] = load_text_lazily,
    features_of: Callable[[Any], FeatureSource | None] = lambda model: None,
) -> TextEngine:
    """Load a model's weights and create its engine, confined to this thread.

    Args:
        adapter: Adapter that prepares requests on another thread; its detected formats are reused here.
        load_lazily: Function that returns the model with weights that are not read yet.
        features_of: Function that returns the model's source of prompt features, if any.

    Raises:
        ProblemError: 503 `load_failed`, or 507 if there is not enough memory for the weights.
        LoadAbandonedError: The load was abandoned.
    """
    from greenroom.engine.adapters.output_adapter import OutputAdapter
    from greenroom.engine.text.speculation.loading import load_speculation
    from greenroom.engine.tokenizer.tokenizer import load_tokenizer

    folder, settings, is_abandoned = load.folder, load.settings, load.is_abandoned
    tokenizer = load_tokenizer(folder, settings.trust_remote_code)
    log.info("thinking", **adapter.thinking.describe())
    prefill_policy = PrefillPolicy(max_stall=settings.max_stall, min_chunk=settings.min_prefill_chunk)
    on_host = open_host_tier(load.account.held, folder, settings)
    with load.open_share() as (share, charge):
        unproved: list[BackgroundCheck] = []
        model = load_model(
            folder, settings, load.progress, is_abandoned, charge, unproved.append, load_lazily
        )
        prefix_cache = None
        if settings.prefix_cache_bytes:
            on_disk = settings.prefix_cache_dir is not None
            stored = open_disk_tier(folder, settings, model) if on_disk else on_host
            prefix_cache = PrefixCache(settings.prefix_cache_bytes, stored)
        speculation = load_speculation(model, tokenizer, settings, is_abandoned, charge)
        return TextEngine(
            model,
            OutputAdapter(tokenizer, adapter.choice),
            prefill_policy,
            prefix_cache=prefix_cache,
            close_timeout=settings.shutdown_timeout / 4,
            speculation=speculation,
            share=share,
            max_rows=settings.max_batch,
            background_check=unproved[0] if unproved else None,
            features=features_of(model),
            clock=load.clock,
            history=PromptHistory() if settings.explain else None,
        )

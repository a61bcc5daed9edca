"""Setup of speculative decoding for a loaded model, from the settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.loading.load_model import load_model
from greenroom.engine.text.speculation.draft_model import DraftModel
from greenroom.engine.text.speculation.prompt_lookup import PromptLookup
from greenroom.engine.text.speculation.speculation import Speculation
from greenroom.engine.tokenizer.tokenizer import ChatTokenizer, load_tokenizer
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import ProblemError, load_failed
from greenroom.schemas.settings.settings import Settings

log = get_logger(__name__)


def load_speculation(
    model: Any,
    tokenizer: ChatTokenizer,
    settings: Settings,
    is_abandoned: Callable[[], bool] = lambda: False,
    reserve_memory: Callable[[int], None] = lambda nbytes: None,
) -> Speculation | None:
    """Return the speculative decoding for this model; None if it is off or not possible.

    Args:
        model: Target model.
        tokenizer: Tokenizer of the target model.
        is_abandoned: Predicate, called between chunks of a draft model's weights.
        reserve_memory: Function called with the bytes of the draft model's weights before they are read; may
            raise ProblemError.

    Raises:
        ProblemError: 503 `load_failed` if the draft model cannot be loaded or does not fit this model; or the
            error of `reserve_memory`.
        LoadAbandonedError: `is_abandoned` returned True.
    """
    draft_model = settings.draft_model
    mode = settings.speculation or ("draft" if draft_model is not None else "off")
    if mode == "off":
        return None
    if not caches.can_trim(caches.new_cache(model)):
        log.info("no speculation", reason="its cache cannot be trimmed")
        return None
    if mode == "lookup" or draft_model is None:
        return Speculation(PromptLookup())
    draft = _load_draft(tokenizer, draft_model, settings, is_abandoned, reserve_memory)
    width = model(mx.array([[0]])).shape[-1]
    share = max(_bytes(draft) / _bytes(model), 1e-3)
    return Speculation(DraftModel(draft, width, share))


def _load_draft(
    tokenizer: ChatTokenizer,
    name: str,
    settings: Settings,
    is_abandoned: Callable[[], bool],
    reserve_memory: Callable[[int], None],
) -> Any:
    folder = _folder(name)
    draft_tokenizer = load_tokenizer(folder, settings.trust_remote_code, name)
    if draft_tokenizer.vocab != tokenizer.vocab:
        reason = f"the draft model '{name}' has another vocabulary; use one of the same family"
        raise ProblemError(load_failed(tokenizer.folder.name, reason))
    draft = load_model(folder, settings, is_abandoned=is_abandoned, reserve_memory=reserve_memory)
    if not caches.can_trim(caches.new_cache(draft)):
        reason = f"the draft model '{name}' has a cache that cannot be trimmed (a sliding window or a state)"
        raise ProblemError(load_failed(tokenizer.folder.name, reason))
    return draft


def _folder(name: str) -> Path:
    """Return the draft model's folder, which was fetched before the load.

    Raises:
        ProblemError: 503 `load_failed`: it is not on this machine.
    """
    from greenroom.engine.catalog.entries import local_folder

    if (folder := local_folder(name)) is None:
        raise ProblemError(load_failed(name, f"it is not on this machine; run `greenroom pull {name}`."))
    return folder


def _bytes(model: Any) -> int:
    from mlx.utils import tree_flatten

    return sum(value.nbytes for _, value in tree_flatten(model.parameters()))

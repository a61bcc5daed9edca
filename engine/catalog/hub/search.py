"""Search for models on the hub."""

from __future__ import annotations

import itertools
from typing import Any

from greenroom.engine.catalog.hub.download_failures import describe_failure
from greenroom.engine.catalog.hub.hub_cache import HUB_ID, find_cached_model, hub_cache_folder
from greenroom.engine.catalog.hub.repository import hub_address
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.download_protocol import FoundModel

SEARCH_SECONDS = 30.0
"""Time limit of a search."""


def search_hub(words: str, limit: int) -> tuple[FoundModel, ...]:
    """Return the models of MLX's library whose ids match words, the most downloaded first; blocks.

    Raises:
        ProblemError: 503 `search_failed`.
    """
    from huggingface_hub import HfApi

    from greenroom.engine.catalog.hub.hub_session import bounded_session

    source, wanted = hub_address(), ["downloads", "likes", "gated"]
    try:
        with bounded_session(SEARCH_SECONDS):
            found = HfApi(endpoint=source).list_models(
                search=words, filter="mlx", sort="downloads", limit=limit, expand=wanted
            )
            return tuple(_found(each) for each in itertools.islice(found, limit) if HUB_ID.fullmatch(each.id))
    except Exception as error:  # the library passes on any error of its HTTP client
        reason = describe_failure(error, source)
        detail = f"Searching the hub failed: {reason}"
        raise ProblemError(Problem(503, "search_failed", detail, retry_after=30)) from error


def _found(entry: Any) -> FoundModel:
    local = find_cached_model(entry.id, hub_cache_folder()) is not None
    gated = entry.gated not in (None, False)
    return FoundModel(entry.id, int(entry.downloads or 0), int(entry.likes or 0), gated, local)

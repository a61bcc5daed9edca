"""Search for models on the hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenroom.engine.catalog.hub.download_failures import describe_failure
from greenroom.engine.catalog.hub.hub_cache import HUB_ID, find_cached_model, hub_cache_folder
from greenroom.engine.catalog.hub.repository import hub_address, hub_token
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.download_protocol import FoundModel

SEARCH_SECONDS = 30.0
"""Time limit of a search."""


def search_hub(words: str, limit: int) -> tuple[FoundModel, ...]:
    """Return the models of MLX's library whose ids match words, the most downloaded first; blocks.

    Raises:
        ProblemError: 503 `search_failed`.
    """
    from huggingface_hub.utils import get_session, hf_raise_for_status

    from greenroom.engine.catalog.hub.hub_session import bounded_session

    source = hub_address()
    asked = {"search": words, "filter": "mlx", "sort": "downloads", "limit": limit}
    try:
        with bounded_session(SEARCH_SECONDS, source):
            # Not by the library's own list: where nobody answers, it asks six times and prints each.
            answer = get_session().get(
                f"{source}/api/models",
                params={**asked, "expand": ["downloads", "likes", "gated"]},
                headers={"authorization": f"Bearer {token}"} if (token := hub_token()) else {},
            )
            hf_raise_for_status(answer)
            return tuple(_found(each) for each in answer.json()[:limit] if HUB_ID.fullmatch(each["id"]))
    except Exception as error:  # the library passes on any error of its HTTP client
        reason = describe_failure(error, source)
        detail = f"Searching the hub failed: {reason}"
        raise ProblemError(Problem(503, "search_failed", detail, retry_after=30)) from error


def _found(entry: Mapping[str, Any]) -> FoundModel:
    local = find_cached_model(entry["id"], hub_cache_folder()) is not None
    downloads, likes = int(entry.get("downloads") or 0), int(entry.get("likes") or 0)
    return FoundModel(entry["id"], downloads, likes, entry.get("gated") not in (None, False), local)

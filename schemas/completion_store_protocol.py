"""The part of the store's protocol (`greenroom.schemas.store_protocol`) that is about chat completions."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from greenroom.schemas.stored import Order, StoredCompletion


@attrs.frozen
class SaveCompletion:
    """Reply: Committed."""

    completion: StoredCompletion


@attrs.frozen
class FindCompletion:
    """Reply: StoredCompletion."""

    id: str
    owner: str


@attrs.frozen
class ListCompletions:
    """Reply: CompletionPage, 404 if `after` is none of them.

    Args:
        model: Only those of this model.
        metadata: Only those with all of these entries.
    """

    owner: str
    after: str | None = None
    limit: int = 20
    order: Order = "asc"
    model: str | None = None
    metadata: Mapping[str, str] = {}


@attrs.frozen
class CompletionPage:
    """Completions in the order that was asked for. A page of large ones is shorter than its limit."""

    completions: tuple[StoredCompletion, ...]
    has_more: bool


@attrs.frozen
class UpdateCompletion:
    """Replace a completion's metadata. Reply: StoredCompletion, its `body` as it was stored."""

    id: str
    owner: str
    metadata: Mapping[str, str]


@attrs.frozen
class DeleteCompletion:
    """Reply: Deleted."""

    id: str
    owner: str

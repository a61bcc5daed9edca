"""Store messages about chat completions, a part of `greenroom.schemas.protocols.store_protocol`."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from greenroom.schemas.stored import Order, StoredCompletion


@attrs.frozen
class SaveCompletion:
    """Store a chat completion. Reply: Committed."""

    completion: StoredCompletion


@attrs.frozen
class FindCompletion:
    """Find a stored chat completion. Reply: StoredCompletion."""

    id: str
    owner: str


@attrs.frozen
class ListCompletions:
    """List stored chat completions. Reply: CompletionPage, or a 404 if `after` is not among them.

    Args:
        model: Model filter; None for every model.
        metadata: Metadata entries that a completion must have.
    """

    owner: str
    after: str | None = None
    limit: int = 20
    order: Order = "asc"
    model: str | None = None
    metadata: Mapping[str, str] = {}


@attrs.frozen
class CompletionPage:
    """A page of completions in the requested order. Large completions make it shorter than its limit."""

    completions: tuple[StoredCompletion, ...]
    has_more: bool


@attrs.frozen
class UpdateCompletion:
    """Replace a completion's metadata. Reply: StoredCompletion, with `body` as first stored."""

    id: str
    owner: str
    metadata: Mapping[str, str]


@attrs.frozen
class DeleteCompletion:
    """Delete a stored chat completion. Reply: Deleted."""

    id: str
    owner: str

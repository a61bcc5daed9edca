"""Request bodies about stored conversations (OpenAI's API reference)."""

from __future__ import annotations

from typing import Annotated, Any

import attrs

from greenroom.schemas.responses.items import Item
from greenroom.schemas.wire import AtMost

MAX_NEW_ITEMS = 20
"""Maximum number of new items in a request."""

NewItems = Annotated[tuple[Item, ...], AtMost(MAX_NEW_ITEMS)]


@attrs.frozen
class CreateRequest:
    """The body of `POST /v1/conversations`."""

    items: NewItems | None = None
    metadata: Any = None


@attrs.frozen
class UpdateRequest:
    """The body of `POST /v1/conversations/{id}`."""

    metadata: Any


@attrs.frozen
class AddItemsRequest:
    """The body of `POST /v1/conversations/{id}/items`."""

    items: NewItems

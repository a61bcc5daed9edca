"""The actors that routes speak to."""

from __future__ import annotations

import attrs

from greenroom.actors.core.ref import Ref
from greenroom.schemas.pool_protocol import PoolMessage
from greenroom.schemas.responses_protocol import ResponsesMessage
from greenroom.schemas.store_protocol import StoreMessage


@attrs.frozen
class ActorRefs:
    """Handles of a system's actors.

    Args:
        pool: Where requests for models begin.
        store: Where what outlives its request is kept.
        responses: What generates answers that are stored.
    """

    pool: Ref[PoolMessage]
    store: Ref[StoreMessage]
    responses: Ref[ResponsesMessage]

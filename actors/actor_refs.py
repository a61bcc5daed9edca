"""References to the actors that routes send messages to."""

from __future__ import annotations

import attrs

from greenroom.actors.core.ref import Ref
from greenroom.actors.records.audit import AuditWriter, TokenMeter
from greenroom.actors.records.inspector import Inspector
from greenroom.actors.store.tables import StoreMessage
from greenroom.schemas.protocols.download_protocol import DownloadMessage
from greenroom.schemas.protocols.pool_protocol import PoolMessage
from greenroom.schemas.protocols.responses_protocol import ResponsesMessage
from greenroom.schemas.protocols.tools_protocol import ToolsMessage


@attrs.frozen
class ActorRefs:
    """References to a system's actors."""

    pool: Ref[PoolMessage]
    store: Ref[StoreMessage]
    responses: Ref[ResponsesMessage]
    downloads: Ref[DownloadMessage]
    tools: Ref[ToolsMessage]
    inspector: Inspector | None = None
    audit: AuditWriter | None = None
    meter: TokenMeter = attrs.field(factory=TokenMeter)

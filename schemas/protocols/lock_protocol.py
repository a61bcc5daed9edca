"""Store messages that lock a conversation against other servers on the same database."""

from __future__ import annotations

import attrs


@attrs.frozen
class AcquireLock:
    """Lock a conversation against turns from other servers. Reply: Committed, or a 409.

    Committing a response in that conversation, releasing it, or the end of this server releases the lock.
    """

    owner: str
    conversation: str


@attrs.frozen
class ReleaseLock:
    """Release the lock of a conversation, if this server holds it. Reply: Committed."""

    owner: str
    conversation: str

"""What can be asked of the store about turns that other servers must not take at the same time."""

from __future__ import annotations

import attrs


@attrs.frozen
class ClaimConversation:
    """Keep other servers on the database from generating a turn of one. Reply: Committed, or a 409.

    It ends with the commit of a response in that conversation, with its release, or with this server.
    """

    owner: str
    conversation: str


@attrs.frozen
class ReleaseConversation:
    """Give a conversation free, if this server has it. Reply: Committed."""

    owner: str
    conversation: str

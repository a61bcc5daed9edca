"""Claims on conversations that hold among all servers on one database: made and given back in order."""

from __future__ import annotations

import math

import structlog
import trio

from greenroom.actors.core.ask_actor import answer_or_failed
from greenroom.actors.core.ref import Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.responses.handles import ConversationHeld
from greenroom.schemas.claim_protocol import ClaimConversation, ReleaseConversation
from greenroom.schemas.events import Failed
from greenroom.schemas.store_protocol import Committed, StoreMessage

log = structlog.get_logger(actor="responses")


class ConversationClaims:
    """Asks the store for one after another, so that no release overtakes the claim that follows it."""

    def __init__(self, store: Ref[StoreMessage]) -> None:
        self._store = store
        self._send, self._receive = trio.open_memory_channel[
            tuple[ClaimConversation, ConversationHeld, Reply] | ReleaseConversation
        ](math.inf)

    def claim(self, owner: str, held: ConversationHeld, reply: Reply) -> None:
        """Claim in the store what is held in this server; reply with it, or with the problem."""
        self._send.send_nowait((ClaimConversation(owner, held.conversation), held, reply))

    def release(self, owner: str, conversation: str) -> None:
        """Give a conversation free for other servers."""
        self._send.send_nowait(ReleaseConversation(owner, conversation))

    async def run(self) -> None:
        """Do it until cancelled."""
        async for asked in self._receive:
            if isinstance(asked, ReleaseConversation):
                answer = await answer_or_failed(self._store, asked, Committed)
                if isinstance(answer, Failed):
                    log.warning("conversation not released", problem=answer.problem.code)
            else:
                message, held, reply = asked
                try:
                    answer = await answer_or_failed(self._store, message, Committed)
                except BaseException:
                    held.close()
                    raise
                if isinstance(answer, Failed):
                    held.close()
                    reply.fail(answer.problem)
                else:
                    reply.send(held)

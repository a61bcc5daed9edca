"""Conversation locks among all servers on a database, acquired and released in order."""

from __future__ import annotations

import math

import trio

from greenroom.actors.core.ask_actor import answer_or_failed
from greenroom.actors.core.ref import Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.responses.handles import ConversationLock
from greenroom.schemas.events.events import Failed
from greenroom.schemas.logs import get_logger
from greenroom.schemas.protocols.lock_protocol import AcquireLock, ReleaseLock
from greenroom.schemas.protocols.store_protocol import Committed, StoreMessage

log = get_logger(actor="responses")


class LockQueue:
    """A queue of lock and release requests to the store, so that no release overtakes the next lock."""

    def __init__(self, store: Ref[StoreMessage]) -> None:
        self._store = store
        self._send, self._receive = trio.open_memory_channel[
            tuple[AcquireLock, ConversationLock, Reply] | ReleaseLock
        ](math.inf)

    def acquire(self, owner: str, lock: ConversationLock, reply: Reply) -> None:
        """Lock in the store a conversation that this server has locked; reply with it or the problem."""
        self._send.send_nowait((AcquireLock(owner, lock.conversation), lock, reply))

    def release(self, owner: str, conversation: str) -> None:
        """Release a conversation for other servers."""
        self._send.send_nowait(ReleaseLock(owner, conversation))

    async def run(self) -> None:
        """Process the queue until cancelled."""
        async for request in self._receive:
            if isinstance(request, ReleaseLock):
                answer = await answer_or_failed(self._store, request, Committed)
                if isinstance(answer, Failed):
                    log.warning("conversation not released", problem=answer.problem.code)
            else:
                message, lock, reply = request
                try:
                    answer = await answer_or_failed(self._store, message, Committed)
                except BaseException:
                    lock.close()
                    raise
                if isinstance(answer, Failed):
                    lock.close()
                    reply.fail(answer.problem)
                else:
                    reply.send(lock)

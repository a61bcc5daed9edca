"""Locks on conversations, so that concurrent turns are not interleaved."""

from __future__ import annotations

from contextlib import closing

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.actors.responses.handles import ConversationLock
from greenroom.http.answering.requests.current_request import request_resources
from greenroom.schemas.protocols.responses_protocol import LockConversation, ResponsesMessage


async def lock_conversation(
    responses: Ref[ResponsesMessage], conversation: str, owner: str
) -> ConversationLock:
    """Lock a conversation; the lock is released with the request unless a run takes it over.

    Raises:
        ProblemError: 409 if another turn holds the lock.
    """
    lock = await ask_actor(responses, LockConversation(owner, conversation), ConversationLock)
    return request_resources().enter_context(closing(lock))

"""Claims on conversations: what is added to one stands behind what was there when it was asked for."""

from __future__ import annotations

from contextlib import closing

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.actors.responses.handles import ConversationHeld
from greenroom.http.answering.requests.current_request import request_resources
from greenroom.schemas.protocols.responses_protocol import HoldConversation, ResponsesMessage


async def hold_conversation(
    responses: Ref[ResponsesMessage], conversation: str, owner: str
) -> ConversationHeld:
    """Return a claim on a conversation, which ends with the request if nobody takes it before.

    Raises:
        ProblemError: 409: another turn is being generated.
    """
    held = await ask_actor(responses, HoldConversation(owner, conversation), ConversationHeld)
    return request_resources().enter_context(closing(held))

"""Requests to models in two calls, for programs that run a system of their own."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Unpack

from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import System
from greenroom.schemas.events.events import Failed, TextDelta
from greenroom.schemas.messages.generation import Parameters, parameters
from greenroom.schemas.messages.messages import Message, TextPart, check_text
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, RequestInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import ProblemError


def generate(
    system: System, asked: RequestInput, *, model: str = "default", **values: Unpack[Parameters]
) -> Generation:
    """Return a started request; iterate over it for its events, and leave its context to end it.

    Args:
        model: A hub id, the name of a folder, or an alias; `default` is the first model of the settings.

    Raises:
        ProblemError: A parameter is out of its range, or a string holds half of a surrogate pair. If the
            model refuses the request, its last event is `Failed` instead.
    """
    check_text("", asked)
    check_text("model", model)
    for name, value in values.items():
        check_text(name, value)
    request = InferenceRequest(uuid.uuid4().hex, ModelKey(model), asked, parameters(**values))
    return Generation(system.pool, request)


async def chat(
    system: System,
    conversation: str | Sequence[Message],
    *,
    model: str = "default",
    **values: Unpack[Parameters],
) -> str:
    """Return the visible answer to a question, or to a conversation.

    Args:
        model: A hub id, the name of a folder, or an alias; `default` is the first model of the settings.

    Raises:
        ProblemError: The request failed.
    """
    if isinstance(conversation, str):
        conversation = (Message("user", (TextPart(conversation),)),)
    answer = ""
    with generate(system, ChatInput(tuple(conversation)), model=model, **values) as generation:
        async for event in generation:
            match event:
                case TextDelta(text, 0):
                    answer += text
                case Failed(problem):
                    raise ProblemError(problem)
    return answer

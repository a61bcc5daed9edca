"""Greenroom as a library: two answers side by side from the built-in model, without HTTP."""

import logging

import structlog
import trio

from greenroom.actors.generation import Generation
from greenroom.actors.system import System, open_system
from greenroom.schemas.events import Failed, TextDelta
from greenroom.schemas.messages import Message, TextPart
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.requests import ChatInput, InferenceRequest
from greenroom.schemas.settings import Settings


async def ask(system: System, question: str) -> None:
    conversation = ChatInput((Message("user", (TextPart(question),)),))
    request = InferenceRequest(question, ModelKey("default"), conversation, {"temperature": 0.0})
    answer = ""
    with Generation(system.pool, request) as generation:
        async for event in generation:
            if isinstance(event, TextDelta):
                answer += event.text
            elif isinstance(event, Failed):
                answer = event.problem.detail
    print(f"{question} {answer}")


async def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    async with open_system(Settings()) as system, trio.open_nursery() as nursery:
        nursery.start_soon(ask, system, "Hello!")
        nursery.start_soon(ask, system, "What is Greenroom?")


if __name__ == "__main__":
    trio.run(main)

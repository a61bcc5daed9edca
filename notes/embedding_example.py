"""Greenroom as a library: answers side by side from the built-in model, without HTTP."""

import trio

from greenroom.api import (
    ChatInput,
    Failed,
    Message,
    Settings,
    System,
    TextDelta,
    TextPart,
    chat,
    generate,
    open_system,
)


async def ask(system: System, question: str) -> None:
    answer = await chat(system, question, temperature=0.0)
    print(f"{question} {answer}")


async def tell(system: System, question: str) -> None:
    """Print the answer while it is written."""
    conversation = ChatInput((Message("user", (TextPart(question),)),))
    with generate(system, conversation, temperature=0.0, max_tokens=200) as events:
        async for event in events:
            match event:
                case TextDelta(text):
                    print(text, end="", flush=True)
                case Failed(problem):
                    print(problem.detail)
    print()


async def main() -> None:
    async with open_system(Settings()) as system:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, system, "Hello!")
            nursery.start_soon(ask, system, "What is Greenroom?")
        await tell(system, "What can you do?")


if __name__ == "__main__":
    trio.run(main)

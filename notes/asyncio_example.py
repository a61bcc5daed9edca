"""Greenroom inside a program under asyncio, without HTTP: a stream, a timeout, and a function under Trio."""

import asyncio

from greenroom.api import Failed, Finished, Settings, TextDelta, run_conversation
from greenroom.asyncio_bridge import AsyncioBridge


async def main() -> None:
    async with AsyncioBridge(Settings()) as bridge:
        async for event in bridge.chat("Hello!", max_tokens=30):
            match event:
                case TextDelta(text):
                    print(text, end="", flush=True)
                case Finished(reason, usage):
                    print(f"\n{reason}, {usage.generated} tokens")
                case Failed(problem):
                    print(problem.detail)
        try:
            async with asyncio.timeout(0.2):
                async for _ in bridge.chat("Tell me a long story.", ignore_eos=True, max_tokens=2_000):
                    pass
        except TimeoutError:
            print("The model has stopped.")
        print((await bridge.run(run_conversation, "What is a server?")).final_message)


asyncio.run(main())

"""Greenroom inside a FastAPI application under uvicorn: its API under /llm/, and a route that streams."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from greenroom.api import Failed, ProblemError, Settings, TextDelta
from greenroom.asyncio_bridge import AsyncioBridge

bridge = AsyncioBridge(Settings())


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    async with bridge:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/llm", bridge)


@app.get("/hello/{name}")
async def hello(name: str) -> StreamingResponse:
    async def words() -> AsyncIterator[str]:
        async for event in bridge.chat(f"Hello, I am {name}!", max_tokens=50):
            match event:
                case TextDelta(text):
                    yield text
                case Failed(problem):
                    raise ProblemError(problem)  # the answer is cut off

    return StreamingResponse(words(), media_type="text/plain")


if __name__ == "__main__":
    import uvicorn

    print("curl http://127.0.0.1:8000/llm/v1/models     curl http://127.0.0.1:8000/hello/Ada")
    uvicorn.run(app, port=8000)

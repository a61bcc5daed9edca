"""Greenroom inside a Starlette application whose middleware reads every response, as many have one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from greenroom.api import Settings, chat
from greenroom.asyncio_bridge import AsyncioBridge

bridge = AsyncioBridge(Settings())


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[None]:
    async with bridge:
        yield


async def hello(_request: Request) -> PlainTextResponse:
    return PlainTextResponse(await bridge.run(chat, "Hello!", max_tokens=50))


class Marking(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers["x-program"] = "own"
        return response


app = Starlette(
    routes=[Route("/hello/{name}", hello), Mount("/llm", bridge)],
    lifespan=lifespan,
    middleware=[Middleware(Marking)],
)

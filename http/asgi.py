"""The server as an ASGI application for any server under Trio.

    hypercorn -k trio 'greenroom.http.asgi:make_app()'

Nothing happens before the server begins the application's lifespan, which opens the system.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from quart_trio import QuartTrio

from greenroom.actors.system import open_system
from greenroom.http.app import create_app
from greenroom.http.encoding.problem_documents import error_members, problem_document, problem_headers
from greenroom.http.settings.sources import read_settings
from greenroom.http.settings.start_checks import locate_database
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings.settings import Settings

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

OF_CONNECTIONS = (
    "port",
    "listen",
    "tls_certificate",
    "tls_key",
    "max_connections",
    "idle_connection",
)
"""Settings that another program's server has in its own form."""
LEFT_TO_THE_SERVER = (
    "close the connections of clients that do not read",
    "refuse requests with two lengths, and heads without an end",
    "answer clients whose bodies are refused while they still send",
    "limit connections, and the time in which a head arrives",
    "stop accepting, and wait for running answers, before it ends the lifespan",
)
"""Tasks that Greenroom's own server does below the application; another one must do them itself."""
NOT_OPEN = Problem(
    503,
    "not_ready",
    "The models are not open: the program around them has not begun its lifespan, or ended it.",
)

log = get_logger(actor="http")


def make_app(
    settings: Settings | None = None, *, protocols: Sequence[str] | None = None, prefix: str = ""
) -> LifespanApp:
    """Return an application whose lifespan is that of its system.

    Args:
        settings: Settings; None for those of the settings file and of `GREENROOM_*`, as `greenroom serve`
            reads them.
        protocols: See `create_app`; likewise `prefix`.
    """
    return LifespanApp(settings, protocols, prefix)


def warn_of_server(settings: Settings) -> None:
    """Log what another program's server must do itself, and the settings that are without effect under it."""
    usual = Settings()
    unused = [name for name in OF_CONNECTIONS if getattr(settings, name) != getattr(usual, name)]
    log.warning("served by another server", it_must=LEFT_TO_THE_SERVER, without_effect=unused)


class LifespanApp:
    """An ASGI application that opens a system when its server starts, and closes it at the end.

    Args:
        settings: See `make_app`; likewise the others.
    """

    def __init__(self, settings: Settings | None, protocols: Sequence[str] | None, prefix: str) -> None:
        self._settings, self._protocols, self._prefix = settings, protocols, prefix
        self._app: QuartTrio | None = None

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Run the lifespan, or answer a request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await refuse(send, NOT_OPEN)
        else:
            await send({"type": "websocket.close", "code": 1012})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        begun = False
        try:
            settings = locate_database(read_settings(None, {})) if self._settings is None else self._settings
            async with open_system(settings) as system:
                self._app = create_app(system, settings, protocols=self._protocols, prefix=self._prefix)
                warn_of_server(settings)
                begun = True
                await send({"type": "lifespan.startup.complete"})
                await receive()
                await system.drain()
        except Exception as error:
            if begun:
                raise
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        finally:
            self._app = None
        await send({"type": "lifespan.shutdown.complete"})


async def refuse(send: Send, problem: Problem) -> None:
    """Answer a request with a problem document."""
    headers = [(name.encode(), value.encode()) for name, value in problem_headers(problem).items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": problem_document(problem, None, error_members)})

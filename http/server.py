"""The HTTP server of a system."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import attrs
import trio

from greenroom.actors.system import System
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.app import closing_responses, create_app_with, web_sockets
from greenroom.http.guard.keys.key_watch import KeyWatch
from greenroom.http.guard.keys.reachability import is_reachable
from greenroom.http.settings.reloader import Reloader
from greenroom.http.transport.accept_loop import AcceptLoop, open_listeners
from greenroom.http.transport.bound_sockets import BoundPath, is_present, remove_paths, unix_paths
from greenroom.http.transport.certificates import Certificates
from greenroom.schemas.logs import get_logger
from greenroom.schemas.settings.settings import Settings

log = get_logger(actor="http")

_PATHS_SECONDS = 2.0
"""Seconds between checks of the paths of Unix sockets."""


async def serve(
    system: System,
    settings: Settings,
    *,
    drain: trio.Event | None = None,
    sockets: Sequence[socket.socket] = (),
    reloader: Reloader | None = None,
    session_key: str | None = None,
    task_status: trio.TaskStatus[tuple[str, ...]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve a system over HTTP until `drain` is set, then finish running requests and return.

    Args:
        drain: Event that stops the server: idle connections close at once, new ones are refused, running
            responses get their share of `settings.shutdown_timeout`, and the rest is cut off.
        sockets: Inherited listening sockets; without any, the addresses of the settings are bound.
        reloader: Reader of changed settings, for `POST /admin/reload`; without one, that is a 501.
        session_key: Key that opens the server to programs of this machine until it ends.
        task_status: Receives the addresses (`http://127.0.0.1:8000`) once connections are accepted.

    Raises:
        OSError: The address cannot be bound.
    """
    listeners = await open_listeners(settings, sockets)
    # Those that another process has bound are for it to remove.
    paths = [] if sockets else unix_paths(each.socket for each in listeners)
    certificates = Certificates(settings)
    services = RouteServices(system.refs, settings)
    if reloader is not None:
        services = attrs.evolve(services, reload=reloader.reload, reloaded=lambda: reloader.settings)
        reloader.tell(services.hosts.update)
        reloader.tell(certificates.update)
    ring = services.door.ring
    if session_key is not None:
        ring.take_session_key(session_key)
    if not settings.insecure and any(map(_is_reachable, listeners)):
        ring.stay_locked()
    watch = KeyWatch(ring, system.refs, settings.db)
    await watch.begin()
    app = create_app_with(services)
    sockets_of_app = web_sockets(app, services)
    loop = AcceptLoop(
        app,
        settings,
        responses=closing_responses(services),
        web_sockets=sockets_of_app,
        certificates=certificates,
    )
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            nursery.start_soon(_watch_paths, unix_paths(each.socket for each in listeners))
            nursery.start_soon(services.deadlines.run, system.refs.pool)
            drain = trio.Event() if drain is None else drain
            await loop.run(listeners, drain, task_status, shared=bool(sockets))
            nursery.cancel_scope.cancel("the server has ended")
    finally:
        remove_paths(paths)


async def _watch_paths(paths: Sequence[BoundPath]) -> None:
    """Log each Unix socket whose path somebody removes; it cannot be given its path again."""
    while paths:
        gone = [bound for bound in paths if not is_present(bound)]
        for bound in gone:
            effect = {"effect": "no client finds it", "instead": "restart the server"}
            log.error("socket path removed", path=bound.path, **effect)
        paths = [bound for bound in paths if bound not in gone]
        await trio.sleep(_PATHS_SECONDS)


def _is_reachable(listener: trio.SocketListener) -> bool:
    name = listener.socket.getsockname()
    return isinstance(name, tuple) and is_reachable(name[0])

"""The Quart-Trio application: routes, request checks and response headers."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import attrs
import trio
from quart import Response, request
from quart_trio import QuartTrio
from werkzeug.datastructures import Headers

from greenroom.actors.records.inspector import Inspector
from greenroom.actors.system import System
from greenroom.http.answering.current_request import (
    audited_request,
    begin_record,
    inspect_response,
    notice_headers,
    request_id,
    request_resources,
)
from greenroom.http.answering.event_stream import STATUS_TIMEOUT
from greenroom.http.answering.http_responses import paced_response
from greenroom.http.answering.protocols import (
    WireProtocol,
    answer_errors,
    model_routes,
    protocol_name,
    protocol_of,
)
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.anthropic.protocol import ANTHROPIC_PROTOCOL
from greenroom.http.encoding.problem_documents import ErrorMembers
from greenroom.http.guard.host_guard import BODY_TYPES
from greenroom.http.guard.keys import Door, Head, KeyRing, KeyWatch, is_reachable, settings_keys
from greenroom.http.guard.local_programs import PEER, LocalPrograms
from greenroom.http.guard.request_body import BODY_LIMIT
from greenroom.http.ollama.protocol import OLLAMA_PROTOCOL
from greenroom.http.openai.protocol import OPENAI_PROTOCOL
from greenroom.http.operations.admin_routes import admin_routes
from greenroom.http.operations.metrics import HttpRequests, health_routes, metrics_route
from greenroom.http.operations.openapi import openapi_routes
from greenroom.http.pages.page_routes import lead_to_pages, page_routes
from greenroom.http.rerank.protocol import RERANK_PROTOCOL
from greenroom.http.responses.posted_message import socket_request
from greenroom.http.responses.protocol import RESPONSES_PROTOCOL
from greenroom.http.responses.socket_session import ResponseSockets
from greenroom.http.settings.reloader import Reloader
from greenroom.http.transport.accept_loop import AcceptLoop, close_listeners, open_listeners
from greenroom.http.transport.bound_sockets import BoundPath, is_present, remove_paths, unix_paths
from greenroom.http.transport.request_connection import (
    FlowControlledRequest,
    RequestConnection,
    client_ids,
    new_request_id,
    request_id_headers,
)
from greenroom.http.transport.request_head import ClosingResponses
from greenroom.http.transport.tls import Certificates
from greenroom.http.transport.web_socket import WebSockets
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.settings import Settings

PROTOCOLS = (OPENAI_PROTOCOL, RESPONSES_PROTOCOL, ANTHROPIC_PROTOCOL, OLLAMA_PROTOCOL, RERANK_PROTOCOL)
"""All protocols; the first one formats errors on paths of no protocol."""

NOWHERE = " "  # Path of what is outside the application's own, which no route has
BODY_TIMEOUT = 60  # Time limit for a request body to arrive, in seconds
_BODY_SECONDS = 10.0  # Longest wait of the end of an answer for the body of its request


def closing_responses(services: RouteServices) -> ClosingResponses:
    """Return the maker of responses to requests that never reach the application, which records each."""
    writer = services.refs.audit
    if writer is None:
        return ClosingResponses(error_shapes)
    book = writer.book

    def record(ident: str, path: str, headers: Headers, problem: Problem) -> None:
        book.refuse(ident, protocol_name(path, headers, PROTOCOLS), path, problem.status, problem.code)

    return ClosingResponses(error_shapes, record)


def error_shapes(path: str, headers: Headers) -> ErrorMembers:
    return protocol_of(path, headers, PROTOCOLS).error_members


def create_app(
    system: System,
    settings: Settings,
    *,
    protocols: Sequence[str] | None = None,
    prefix: str = "",
    status_timeout: float = STATUS_TIMEOUT,
) -> QuartTrio:
    """Return an application for another program's server, which turns requests into messages to a system.

    It watches keys and time limits as long as the system runs.

    Args:
        protocols: Names of the protocols to serve (`openai`, `responses`, `anthropic`, `ollama`, `rerank`);
            None for all.
        prefix: Path under which it is mounted, such as `/llm`, if the server does not tell it (`root_path`).
        status_timeout: Longest wait for a status, in seconds; then a stream opens.

    Raises:
        ValueError: There is no such protocol, or the prefix is no path.
    """
    if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
        raise ValueError(f"prefix = {prefix!r}: a path begins with / and does not end so, such as /llm")
    known = {protocol.name: protocol for protocol in PROTOCOLS}
    names = tuple(known) if protocols is None else tuple(protocols)
    if not names or not known.keys() >= set(names):
        raise ValueError(f"protocols = {protocols!r}: name one or more of {', '.join(known)}")
    door = Door(
        KeyRing(settings_keys(settings)),
        open_loopback=settings.open_loopback,
        lets_networks_in=settings.insecure,
    )
    services = RouteServices(system.refs, settings, status_timeout, door=door)
    app = create_app_with(services, tuple(known[name] for name in known if name in names))
    watch, begun = KeyWatch(door.ring, system.refs, settings.db), trio.Event()

    async def keep_watch() -> None:
        try:
            await watch.begin()
        finally:
            begun.set()
        await watch.run()

    system.attend(keep_watch)
    system.attend(services.deadlines.run, system.refs.pool)
    app.asgi_app = partial(_answer_mounted, app.asgi_app, prefix, begun)  # type: ignore[method-assign]
    return app


async def _answer_mounted(
    app: Any, prefix: str, begun: trio.Event, scope: Any, receive: Any, send: Any
) -> None:
    """Answer a request under the prefix once the keys are known; other paths do not exist."""
    if scope["type"] == "websocket":  # only Greenroom's own server has them
        await send({"type": "websocket.close", "code": 1012})
        return
    if scope["type"] != "lifespan":
        await begun.wait()
        root, path = scope.get("root_path", ""), scope["path"]
        if not root.endswith(prefix):
            root += prefix
        is_under = path == root or path.startswith(f"{root}/")
        scope = {**scope, "root_path": root, "path": path if is_under else f"{root}/{NOWHERE}"}
        receive, send = _end_after_body(receive, send)
    await app(scope, receive, send)


def _end_after_body(receive: Any, send: Any) -> tuple[Any, Any]:
    """Return both, so that an answer ends after its request's body: otherwise Hypercorn under Trio neither
    closes the connection nor answers what comes next on it.
    """
    arrived = trio.Event()

    async def receive_part() -> Any:
        message = await receive()
        if not message.get("more_body"):
            arrived.set()
        return message

    async def send_late(message: Any) -> None:
        with trio.move_on_after(_BODY_SECONDS):
            await arrived.wait()
        await send(message)

    def send_part(message: Any) -> Awaitable[None]:
        is_last = message["type"] == "http.response.body" and not message.get("more_body")
        return send_late(message) if is_last and not arrived.is_set() else send(message)

    return receive_part, send_part


def create_app_with(services: RouteServices, protocols: Sequence[WireProtocol] = PROTOCOLS) -> QuartTrio:
    """Return an application whose routes work with these services."""
    app = QuartTrio(__name__, static_folder=None)
    app.asgi_http_class = RequestConnection
    app.request_class = FlowControlledRequest
    app.config["BODY_TIMEOUT"] = BODY_TIMEOUT
    app.url_map.merge_slashes = False
    app.url_map.strict_slashes = False
    respond, requests = answer_errors(app, protocols), HttpRequests()
    _Guard(app, services, protocols, respond, requests)
    _inspect(app, services.refs.inspector)
    app.register_blueprint(page_routes())
    app.register_blueprint(health_routes(services.refs))
    app.register_blueprint(openapi_routes(app))
    for routes in admin_routes(services):
        app.register_blueprint(routes)
    app.register_blueprint(metrics_route(services.refs, requests))
    if any(protocol.models is not None for protocol in protocols):
        app.register_blueprint(model_routes(services.refs.pool, protocols))
    for protocol in protocols:
        for routes in protocol.routes(services):
            app.register_blueprint(routes)
    return app


def web_sockets(app: QuartTrio, services: RouteServices) -> WebSockets:
    return {"/v1/responses": ResponseSockets(app, services)}


class _Guard:
    """Checks of a request before its body is read, and the headers of its response."""

    def __init__(
        self,
        app: QuartTrio,
        services: RouteServices,
        protocols: Sequence[WireProtocol],
        respond: Callable[[Problem], Response],
        requests: HttpRequests,
    ) -> None:
        self._app, self._respond, self._requests, self._protocols = app, respond, requests, protocols
        self._hosts, self._answers, self._door = services.hosts, services.answers, services.door
        self._deadlines, self._audit = services.deadlines, services.refs.audit
        self._programs = LocalPrograms(services.settings.max_batch)
        services.refs.meter.follow(self._door.limits)
        app.before_request(self._check)
        app.after_request(self._finish)

    async def _check(self) -> Response | None:
        """Admit a request, or answer a preflight. Raises ProblemError: the request is refused."""
        state = request.scope["state"]
        state["request_id"], state["client_ids"] = new_request_id(), client_ids(request.headers)
        book = None if self._audit is None else self._audit.book
        protocol = protocol_name(request.path, request.headers, self._protocols)
        begin_record(book, protocol, on_socket=socket_request() is not None)
        _raise_if(self._hosts.find_problem(request.headers, request.scheme, request.http_version))
        if request.root_path and request.scope["path"] == request.root_path:
            # Addresses in the pages are relative to the folder that the application is mounted at.
            folder = quote(request.root_path.rpartition("/")[2])
            return Response("", status=308, headers={"location": f"{folder}/"})
        if request.method == "OPTIONS":
            return self._preflight() if "Origin" in request.headers else None
        if (led := lead_to_pages()) is not None:
            return led
        await self._admit(state)
        if request.routing_exception is None and request.method in ("POST", "PUT", "PATCH"):
            _raise_if(self._hosts.find_body_problem(self._body_type(), request.headers))
        return None

    def _preflight(self) -> Response:
        methods = {method for rule in self._app.url_map.iter_rules() for method in rule.methods or ()}
        response = Response("", status=204, headers=self._hosts.preflight_headers(request.headers, methods))
        del response.headers["content-length"]  # which a 204 must not have
        return response

    async def _admit(self, state: dict[str, Any]) -> None:
        """Check the API key and its limits, and begin the request's time.

        That is done before a body is read: most refused requests are refused by their heads alone.
        """
        state["caller"] = await self._door.admit(_head())
        state["ring"] = self._door.ring
        if self._audit is not None:
            self._audit.book.admit(state["request_id"], state["caller"].owner)
        resources = request_resources()
        if request.method == "POST" and not request.path.startswith("/admin/"):
            caller = state["caller"]
            if request.path.endswith("/cancel"):  # which lets others begin
                caller = attrs.evolve(caller, concurrent=None)
            resources.callback(self._door.limits.admit(caller, state["request_id"]))
            if not caller.has_key and (peer := state.get(PEER)) is not None:
                await self._programs.number(peer, resources, takes_turns="/audio/" in request.path)
        resources.callback(self._door.ring.attend_request(state["caller"], state["request_id"]))
        route = request.path if request.url_rule is None else request.url_rule.rule  # without a last slash
        state[BODY_LIMIT], leave = self._deadlines.attend(state["request_id"], route)
        resources.callback(leave)

    def _body_type(self) -> str:
        # Browsers whose extensions or settings suppress Origin still send Sec-Fetch-Site.
        from_browser = "Origin" in request.headers or "Sec-Fetch-Site" in request.headers
        bodiless = not request.content_length and "Transfer-Encoding" not in request.headers
        any_type = protocol_of(request.path, request.headers, self._protocols).any_body_type
        tolerant = not from_browser and (any_type or (bodiless and not request.mimetype))
        return BODY_TYPES[0] if tolerant else request.mimetype

    async def _finish(self, response: Response) -> Response:
        try:
            paced = paced_response(self._answers, response)
        except ProblemError as refusal:
            paced = self._respond(refusal.problem)
        self._requests.record(request, paced)
        if (audited := audited_request()) is not None:
            audited.status = paced.status_code
        self._add_headers(paced)
        return paced

    def _add_headers(self, response: Response) -> None:
        ids = request_id_headers(request_id()) | request.scope["state"]["client_ids"].headers
        response.headers.update(ids | notice_headers())
        if (known := request.scope["state"].get("caller")) is not None:
            anthropic = protocol_name(request.path, request.headers, self._protocols) == "anthropic"
            response.headers.update(self._door.limits.headers(known, anthropic=anthropic))
        response.headers["x-content-type-options"] = "nosniff"
        origin = request.headers.get("Origin")
        if origin is not None and self._hosts.allows_origin(origin):
            response.headers.update(self._hosts.cors_headers(origin))
            response.vary.add("Origin")


def _raise_if(problem: Problem | None) -> None:
    if problem is not None:
        raise ProblemError(problem)


def _inspect(app: QuartTrio, inspector: Inspector | None) -> None:
    if inspector is None:
        return

    async def record(response: Response) -> Response:
        await inspect_response(inspector, response)
        return response

    app.after_request(record)


def _head() -> Head:
    headers, address = request.headers, request.remote_addr
    own = (request.scope.get("server") or (None,))[0]  # which a test client does not tell
    return Head(request.method, request.path, headers, address, request.http_version, own)


log = get_logger(actor="http")

_PATHS_SECONDS = 2.0  # Seconds between checks of the paths of Unix sockets


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
    certificates = Certificates(settings)
    services = RouteServices(system.refs, settings)
    if reloader is not None:
        services = attrs.evolve(services, reload=reloader.reload, reloaded=lambda: reloader.settings)
        reloader.tell(services.hosts.update)
        reloader.tell(certificates.update)
    ring = services.door.ring
    if session_key is not None:
        ring.take_session_key(session_key)
    listeners = await open_listeners(settings, sockets)
    # Those that another process has bound are for it to remove.
    paths = [] if sockets else unix_paths(each.socket for each in listeners)
    try:
        if not settings.insecure and any(map(_is_reachable, listeners)):
            ring.stay_locked()
        watch = KeyWatch(ring, system.refs, settings.db)
        await watch.begin()
        app = create_app_with(services)
        responses, handlers = closing_responses(services), web_sockets(app, services)
        loop = AcceptLoop(app, settings, responses=responses, web_sockets=handlers, certificates=certificates)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            nursery.start_soon(_watch_paths, unix_paths(each.socket for each in listeners))
            nursery.start_soon(services.deadlines.run, system.refs.pool)
            drain = trio.Event() if drain is None else drain
            await loop.run(listeners, drain, task_status, shared=bool(sockets))
            nursery.cancel_scope.cancel("the server has ended")
    finally:
        close_listeners(listeners)
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

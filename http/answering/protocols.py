"""Protocols as the application sees them: routes, errors, model lists, and paths that only others have."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import attrs
import cattrs
from quart import Blueprint, Response, request
from quart_trio import QuartTrio
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, RequestedRangeNotSatisfiable

from greenroom.actors.core.ref import Ref, ask_actor
from greenroom.http.answering.current_request import audited_request, describe_models, request_id
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.problem_documents import (
    ErrorMembers,
    problem_document,
    problem_headers,
    status_phrase,
)
from greenroom.schemas.logs import get_logger
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.problems import Problem, ProblemError, internal_error
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolMessage, PoolStatus

_STATE = (
    "`/metrics` has figures for Prometheus, `/admin/status` the state of the server, `/api/ps` the loaded "
    "models, and the log the tokens and times of each request."
)
_REFERENCE = (
    "There is no page about the API, but `/openapi.json` describes it: it is OpenAI's under `/v1`, "
    "Anthropic's at `/v1/messages` and Ollama's under `/api`."
)
_PAGE = "There is no web page here: connect a client, or run `greenroom chat`."
_FILES = "No files are kept here: send them in the messages."
_ASSISTANTS = "Assistants are not served, but `/v1/responses` and `/v1/conversations` are."

_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("/props", "/slots", "/stats", "/status"), _STATE),
    **dict.fromkeys(("/docs", "/redoc", "/swagger"), _REFERENCE),
    **dict.fromkeys(("/admin", "/chat", "/index.html", "/playground", "/ui"), _PAGE),
    **dict.fromkeys(("/v1/files", "/v1/uploads", "/v1/vector_stores"), _FILES),
    **dict.fromkeys(("/v1/assistants", "/v1/threads"), _ASSISTANTS),
    "/v1/batches": "There are no batches: send all requests at once, and they are computed together.",
    "/v1/fine_tuning": "No models are trained here.",
    "/v1/images": "No images are drawn here.",
    "/v1/moderations": "Texts are not moderated here.",
    "/v1/realtime": "Speech in real time is not served. A WebSocket is at `/v1/responses`.",
    "/v1/videos": "No videos are made here.",
    "/v2/chat": "Of Cohere's API, `/v2/rerank` is served. Chats are at `/v1/chat/completions`.",
}
"""By the whole path, or its first two segments."""

ABSENT = frozenset(_INSTEAD)  # The paths of which it is known


def what_is_instead(path: str) -> str | None:
    """Return the sentence about a path that this server lacks on purpose; None for any other path."""
    whole = path.rstrip("/")
    return _INSTEAD.get(whole) or _INSTEAD.get("/".join(whole.split("/")[:3]))


log = get_logger(actor="http")

_LONGEST_PATH = 100  # Characters of a path that are compared with the known paths

HTTP_CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "body_too_large",
    415: "unsupported_media_type",
}

DETAILS = {
    404: "This path does not exist here.",
    405: "This path does not support that method.",
    408: "The body did not arrive in time.",
    413: "The body is larger than this server takes.",
}


def answer_errors(app: QuartTrio, protocols: Sequence[WireProtocol]) -> Callable[[Problem], Response]:
    """Register error handlers for every exception, and return the function that formats a problem.
    `protocols`: protocols that format errors for their own clients and paths; the first one is the default.
    """

    def respond(problem: Problem) -> Response:
        if (audited := audited_request()) is not None:
            audited.record_problem(problem)
        members = protocol_of(request.path, request.headers, protocols).error_members
        document = problem_document(problem, request_id(), members)
        return Response(document, status=problem.status, headers=problem_headers(problem))

    async def on_problem(error: ProblemError) -> Response:
        return respond(error.problem)

    async def on_http_error(error: HTTPException) -> Response:
        problem = _problem(error)
        if error.code == 404 and (hint := _hint(request.path, known_paths(app))) is not None:
            problem = attrs.evolve(problem, detail=f"{problem.detail} {hint}")
        response = respond(problem)
        for name, value in error.get_headers():
            if name.lower() not in ("content-type", "content-length"):
                response.headers[name] = value
        return response

    async def on_crash(error: Exception) -> Response:
        log.error("request crashed", request_id=request_id(), exc_info=error)
        return respond(internal_error())

    app.register_error_handler(ProblemError, on_problem)
    app.register_error_handler(HTTPException, on_http_error)
    app.register_error_handler(Exception, on_crash)
    return respond


def known_paths(app: QuartTrio) -> list[str]:
    """Return the application's paths that have no parameters."""
    return [rule.rule for rule in app.url_map.iter_rules() if "<" not in rule.rule]


def nearest_path(path: str, known: Sequence[str]) -> str | None:
    """Return the path that a client probably meant: most often it omitted `/v1`, or wrote it twice."""
    path = path.rstrip("/")[:_LONGEST_PATH]
    for meant in (f"/v1{path}", path.replace("/v1/v1/", "/v1/"), path.removeprefix("/v1")):
        if meant in known:
            return meant
    return next(iter(difflib.get_close_matches(path, known, 1, 0.8)), None)


def _hint(path: str, known: Sequence[str]) -> str | None:
    if (instead := what_is_instead(path)) is not None:
        return instead
    meant = nearest_path(path, known)
    return None if meant is None else f"Did you mean `{request.root_path}{meant}`?"


def _problem(error: HTTPException) -> Problem:
    status = error.code or 500
    phrase = f"{status_phrase(status)}."
    if isinstance(error, RequestedRangeNotSatisfiable) or status not in HTTP_CODES:
        return Problem(status, "http_error", phrase)
    return Problem(status, HTTP_CODES[status], DETAILS.get(status, phrase))


def model_routes(pool: Ref[PoolMessage], protocols: Sequence[WireProtocol]) -> Blueprint:
    """Return the blueprint of the routes that list models. `protocols`: protocols to answer in; at least one
    of them lists models.
    """
    routes = Blueprint("models", __name__)

    def formatter() -> ModelFormatter:
        asked = protocol_of(request.path, request.headers, protocols)
        return next(protocol.models for protocol in (asked, *protocols) if protocol.models is not None)

    async def states() -> dict[str, ModelState]:
        status = await ask_actor(pool, DescribePool(), PoolStatus)
        return {model.key.model: model.state for model in status.models}

    @routes.get("/v1/models")
    @described("List the models, in the format of the client's protocol")
    async def models() -> Response:
        found = await describe_models(pool)
        return json_response(formatter().listed(found, await states(), request.args.to_dict()))

    @routes.get("/v1/models/<path:model>")
    @described("Describe a model; its id may contain slashes", problems=(404,))
    async def one_model(model: str) -> Response:
        [found, *_] = await describe_models(pool, model)
        return json_response(formatter().one(found, await states()))

    return routes


F = TypeVar("F", bound=Callable[..., Any])

JSON = "application/json"
EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
TEXT = "text/plain"
HTML = "text/html"
FORM = "multipart/form-data"

ANSWERED_BY_A_MODEL = (404, 500, 501, 503, 507)
"""Statuses of problems of a request that waits for a model and is answered by it."""
STORED = (404, 409, 503, 507)  # Statuses of problems of a request for stored objects
FOR_OPERATORS = (403,)
"""Statuses of problems of a route that answers to programs of the server's machine only."""


@attrs.frozen
class RouteDescription:
    """The description of a route for the reader of `/openapi.json`; it decorates the route's function, below
    the decorator that adds the route.

    Every route may also answer with the problems of any request (`greenroom.http.operations.openapi`), and
    one that reads a body with those of bodies.

    Args:
        summary: Sentence without a full stop, in the imperative.
        body: Wire type of the request's body; None for no body, or one without a type of its own.
        converter: Converter that reads the body; it tells which types have several forms on the wire.
        body_media: Media type of the body, JSON by default; None for no body.
        query: attrs class whose fields are the parameters of the URL's query; None for none.
        answer: Wire type of the answer in JSON; None for one that is not described further.
        status: Status of the answer; None if the route only refuses.
    """

    summary: str
    body: Any = None
    converter: cattrs.Converter | None = None
    body_media: str | None = attrs.field()
    query: type[attrs.AttrsInstance] | None = None
    answer: Any = None
    media: tuple[str, ...] = (JSON,)
    status: int | None = 200
    problems: tuple[int, ...] = ()

    @body_media.default
    def _media_of_body(self) -> str | None:
        return None if self.body is None else JSON

    def __call__(self, handler: F) -> F:
        setattr(handler, _DESCRIPTION, self)
        return handler


described = RouteDescription
_DESCRIPTION = "route_description"


def description_of(handler: Any) -> RouteDescription | None:
    found = getattr(inspect.unwrap(getattr(handler, "func", handler)), _DESCRIPTION, None)
    return found if isinstance(found, RouteDescription) else None


States = Mapping[str, ModelState]

Routes = Callable[[RouteServices], Sequence[Blueprint]]
"""Makes a protocol's routes, given the objects that they work with."""


class ModelFormatter(Protocol):
    def listed(self, models: Sequence[ModelDescription], states: States, query: Mapping[str, str]) -> object:
        """Return the response to `GET /v1/models` as a JSON-like object, or as bytes.

        Args:
            models: The models; the same object as before while nothing about them has changed.

        Raises:
            ProblemError: 400 that names the wrong query parameter.
        """

    def one(self, model: ModelDescription, states: States) -> object:
        """Return the response to `GET /v1/models/{id}` as a JSON-like object."""


@attrs.frozen
class WireProtocol:
    """Paths, routes, error format and model list of a protocol.

    Args:
        paths: Prefixes of its paths, e.g. `/v1/messages`; the longest matching prefix of all protocols wins.
        models: Formatter of its model list; None if it has none under `/v1/models`.
        mark: Header that only its clients send, on every request: they get this protocol's format on any
            path.
        any_body_type: True if its clients send JSON under any content type. Browsers must not: another site's
            form could send such a body, but a form always sends its origin.
    """

    paths: tuple[str, ...]
    routes: Routes
    error_members: ErrorMembers
    models: ModelFormatter | None = None
    mark: str | None = None
    any_body_type: bool = False
    name: str = ""


def protocol_name(path: str, headers: Headers, protocols: Sequence[WireProtocol]) -> str:
    """Return the name of the protocol that a request belongs to; empty for a path of none."""
    found = protocol_of(path, headers, protocols)
    by_mark = found.mark is not None and found.mark in headers
    return found.name if by_mark or any(map(path.startswith, found.paths)) else ""


def protocol_of(path: str, headers: Headers, protocols: Sequence[WireProtocol]) -> WireProtocol:
    """Return the protocol of a request: its client's, else its path's, else the first one."""
    for protocol in protocols:
        if protocol.mark is not None and protocol.mark in headers:
            return protocol
    found = [
        (len(prefix), protocol)
        for protocol in protocols
        for prefix in protocol.paths
        if path.startswith(prefix)
    ]
    return max(found, key=lambda entry: entry[0])[1] if found else protocols[0]

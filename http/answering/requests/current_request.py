"""Access to the current request: its client, its body, and the resources released when it ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar, cast

import cattrs
from quart import current_app, request

from greenroom.http.answering.requests.request_parameters import NeutralValues, refuse_unsupported
from greenroom.http.guard.answer_account import AnswerAccount
from greenroom.http.guard.client_name import client_name
from greenroom.http.guard.form_reader import Form, FormReader
from greenroom.http.guard.request_body import RequestBodies
from greenroom.http.guard.upload_folder import SpooledFile
from greenroom.http.media.fetcher import Fetcher
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.stored import EVERYBODY
from greenroom.schemas.wire import structure

T = TypeVar("T")
W = TypeVar("W")

BODIES = "greenroom_bodies"
"""Name of the application extension that reads bodies."""
ANSWERS = "greenroom_answers"
"""Name of the application extension that counts the bytes of unsent responses."""
FORMS = "greenroom_forms"
"""Name of the application extension that reads forms with files."""
FETCHER = "greenroom_fetcher"
"""Name of the application extension that fetches files."""

SETTINGS = "GREENROOM_SETTINGS"
"""Key of the server's settings in the application's configuration."""


def request_id() -> str:
    """Return the id of the request in headers, logs and actor messages."""
    return str(request.scope["state"]["request_id"])


def answer_id(prefix: str) -> str:
    """Return an id for the response that contains the request's id, e.g. `chatcmpl-…`."""
    return f"{prefix}{request_id().removeprefix('req_')}"


def request_client() -> str:
    """Return a name for the client, for fairness between clients."""
    return client_name(request.headers, request.remote_addr)


def request_owner() -> str:
    """Return the owner of the objects that this request may store and read."""
    return EVERYBODY


def stores_answers() -> bool:
    """Return whether the operator's settings allow stored responses."""
    return _settings().store_responses


def sampling_defaults() -> Overrides:
    """Return the operator's sampling defaults, for requests that set none."""
    settings = _settings()
    defaults = {"temperature": settings.temperature, "top_p": settings.top_p}
    return {name: value for name, value in defaults.items() if value is not None}


def _settings() -> Settings:
    return cast("Settings", current_app.config[SETTINGS])


async def with_files(asked: InferenceRequest) -> InferenceRequest:
    """Return the request with the contents of the files that it references by URL.

    Raises:
        ProblemError: 400 that names what cannot be fetched, 503 where too much is being fetched.
    """
    bodies: RequestBodies = current_app.extensions[BODIES]
    fetcher: Fetcher = current_app.extensions[FETCHER]
    return await fetcher.complete(asked, lambda: bodies.account(request_resources()))


def request_resources() -> ExitStack:
    """Return the resources that are closed when the response has ended or the client has disconnected."""
    return cast("ExitStack", request.scope["state"]["resources"])


def hold_answer(size: int) -> None:
    """Charge a complete response to the memory budget until it is sent; call this before encoding it.

    Raises:
        ProblemError: 503: other unsent responses use up the memory budget.
    """
    answers: AnswerAccount = current_app.extensions[ANSWERS]
    answers.hold(request_resources(), size)


async def read_form() -> Form:
    """Return the request's form, whose file stays on disk until the request ends.

    Raises:
        ProblemError: 400, 413, 415, 503 or 507.
    """
    forms: FormReader = current_app.extensions[FORMS]
    return await forms.read(request, request_resources())


async def spool(data: bytes) -> Path:
    """Write data to a file in the upload folder that is kept until the request ends.

    Raises:
        ProblemError: 503 if other uploads use up the budget, 507 if the disk is full.
    """
    forms: FormReader = current_app.extensions[FORMS]
    file = SpooledFile(forms.folder, request_resources())
    file.expect(len(data))
    await file.write(data)
    await file.flush()
    return file.path


async def read_request(
    wire_type: type[W],
    converter: cattrs.Converter,
    unsupported: NeutralValues,
    parse: Callable[[W, JsonObject], T],
    *,
    files: bool = False,
    look: Callable[[JsonObject], None] | None = None,
) -> tuple[W, T]:
    """Return the request's JSON body as a wire type, and the result of parsing that.

    Args:
        unsupported: Unsupported official parameters, with the neutral values that are accepted.
        parse: Parses the wire type, given also the raw body; called on a worker thread if the body is large.
        files: True if the body may hold images and other files, which raises its size limit.
        look: Inspects the body before any check.

    Raises:
        ProblemError: 400, 413, 415 or 503; errors in the body are named by their path.
    """

    def parse_body(body: JsonObject) -> tuple[W, T]:
        if look is not None and isinstance(body, dict):
            look(body)
        refuse_unsupported(body, unsupported)
        wire = structure(body, wire_type, converter)
        return wire, parse(wire, body)

    bodies: RequestBodies = current_app.extensions[BODIES]
    return await bodies.parse(request, request_resources(), parse_body, files=files)

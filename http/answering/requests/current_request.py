"""The request that is being answered: who sent it, what it says, and what is released when it ends."""

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
from greenroom.schemas.generation import Overrides
from greenroom.schemas.messages import JsonObject
from greenroom.schemas.requests import InferenceRequest
from greenroom.schemas.settings import Settings
from greenroom.schemas.stored import EVERYBODY
from greenroom.schemas.wire import structure

T = TypeVar("T")
W = TypeVar("W")

BODIES = "greenroom_bodies"
"""Name of the application's extension that reads bodies."""
ANSWERS = "greenroom_answers"
"""Name of the one that counts the bytes of whole answers."""
FORMS = "greenroom_forms"
"""Name of the one that reads forms with files."""
FETCHER = "greenroom_fetcher"
"""Name of the one that fetches files."""

SETTINGS = "GREENROOM_SETTINGS"
"""Name under which the application knows the server's settings."""


def request_id() -> str:
    """Return the id that the client, the logs and the actors call the request by."""
    return str(request.scope["state"]["request_id"])


def answer_id(prefix: str) -> str:
    """Return an id for its answer, e.g. `chatcmpl-…`, in which the request's can be recognised."""
    return f"{prefix}{request_id().removeprefix('req_')}"


def request_client() -> str:
    """Return a name for whoever sent it, for fairness between clients."""
    return client_name(request.headers, request.remote_addr)


def request_owner() -> str:
    """Return to whom what it stores belongs, and whose things it may read."""
    return EVERYBODY


def stores_answers() -> bool:
    """Return whether the server keeps answers at all."""
    return _settings().store_responses


def sampling_defaults() -> Overrides:
    """Return what the operator has set for answers whose requests say nothing else."""
    settings = _settings()
    defaults = {"temperature": settings.temperature, "top_p": settings.top_p}
    return {name: value for name, value in defaults.items() if value is not None}


def _settings() -> Settings:
    return cast("Settings", current_app.config[SETTINGS])


async def with_files(asked: InferenceRequest) -> InferenceRequest:
    """Return what is asked with the files in it that it names by their address.

    Raises:
        ProblemError: 400 that names what cannot be fetched, 503 where too much is being fetched.
    """
    bodies: RequestBodies = current_app.extensions[BODIES]
    fetcher: Fetcher = current_app.extensions[FETCHER]
    return await fetcher.complete(asked, lambda: bodies.account(request_resources()))


def request_resources() -> ExitStack:
    """Return what is closed when its answer has ended or its client has left."""
    return cast("ExitStack", request.scope["state"]["resources"])


def hold_answer(size: int) -> None:
    """Count the bytes of its whole answer until that is sent; to be told before they are encoded.

    Raises:
        ProblemError: 503: other answers leave no room for it.
    """
    answers: AnswerAccount = current_app.extensions[ANSWERS]
    answers.hold(request_resources(), size)


async def read_form() -> Form:
    """Return its form, whose file lies on disk until the request ends.

    Raises:
        ProblemError: 400, 413, 415, 503 or 507.
    """
    forms: FormReader = current_app.extensions[FORMS]
    return await forms.read(request, request_resources())


async def spool(data: bytes) -> Path:
    """Return a file that holds data until the request ends, among those that clients upload.

    Raises:
        ProblemError: 503 if other requests leave no room, 507 if the disk does not.
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
    """Return its JSON body as a wire type, and what was parsed from that.

    Args:
        unsupported: Official parameters that are refused unless their value asks for nothing.
        parse: Gets the wire type and the body as it came; called on another thread if the body is large.
        files: There may be images and other files in it: it may be larger than others.
        look: Sees the body before anything of it is refused.

    Raises:
        ProblemError: 400, 413, 415 or 503; what is wrong with the body is named by its path.
    """

    def parse_body(body: JsonObject) -> tuple[W, T]:
        if look is not None and isinstance(body, dict):
            look(body)
        refuse_unsupported(body, unsupported)
        wire = structure(body, wire_type, converter)
        return wire, parse(wire, body)

    bodies: RequestBodies = current_app.extensions[BODIES]
    return await bodies.parse(request, request_resources(), parse_body, files=files)

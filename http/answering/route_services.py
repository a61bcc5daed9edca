"""The application's actors, settings and request readers, as routes use them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import cattrs
from quart import request

from greenroom.actors.actor_refs import ActorRefs
from greenroom.http.answering.current_request import (
    audit_body,
    audited_request,
    for_caller,
    inspect_body,
    request_client,
    request_resources,
)
from greenroom.http.answering.event_stream import STATUS_TIMEOUT
from greenroom.http.answering.request_parameters import NeutralValues, refuse_unsupported
from greenroom.http.guard.byte_account import AnswerAccount
from greenroom.http.guard.host_guard import HostGuard
from greenroom.http.guard.keys import Door, KeyRing, settings_keys
from greenroom.http.guard.multipart_forms import Form, FormReader, SpooledFile
from greenroom.http.guard.request_body import RequestBodies
from greenroom.http.guard.request_deadlines import RequestDeadlines
from greenroom.http.media.fetcher import Fetcher
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.wire.admin import Reloaded
from greenroom.schemas.wire.wire import structure

_SECRETS = re.compile(rb'("(?:authorization(?:_token)?|headers)"\s*:\s*)(?:"(?:[^"\\]|\\.)*"|\{[^{}]*\})')
"""Members of JSON with secrets for MCP servers."""

_ADAPTERS: dict[str, tuple[Any, ...]] = {"lora": ([],)}
"""llama-server's adapters, which no other request applies."""

T = TypeVar("T")
W = TypeVar("W")


def _made(of: Callable[[Settings], Any]) -> Any:
    """Return an attrs field whose default is made of the settings."""
    return attrs.field(default=attrs.Factory(lambda self: of(self.settings), takes_self=True))


@attrs.frozen(eq=False)
class RouteServices:
    """The application's actors, settings and readers, given to each protocol's routes.

    Args:
        status_timeout: Longest wait for the status of a streamed response, in seconds.
        answers: Memory budget of complete responses that are not sent yet.
        reload: Function that takes in changed settings; None if a program has given them.
        reloaded: Function that returns the settings as they are now; None if they never change.
    """

    refs: ActorRefs
    settings: Settings
    status_timeout: float = STATUS_TIMEOUT
    bodies: RequestBodies = attrs.field()
    forms: FormReader = _made(lambda settings: FormReader(settings.max_upload_bytes))
    fetcher: Fetcher = _made(Fetcher)
    answers: AnswerAccount = attrs.field(factory=AnswerAccount)
    hosts: HostGuard = _made(HostGuard)
    door: Door = _made(
        lambda settings: Door(KeyRing(settings_keys(settings)), open_loopback=settings.open_loopback)
    )
    deadlines: RequestDeadlines = _made(lambda settings: RequestDeadlines(settings.request_timeout))
    reload: Callable[[], Awaitable[Reloaded]] | None = None
    reloaded: Callable[[], Settings] | None = None

    @bodies.default
    def _new_bodies(self) -> RequestBodies:
        inspector, audit = self.refs.inspector, self.refs.audit
        observers: list[Callable[[Sequence[bytes]], None]] = []
        if inspector is not None:
            observers.append(partial(inspect_body, inspector))
        if audit is not None and audit.book.content:
            observers.append(partial(audit_body, audit.book))
        return RequestBodies(self.settings.max_body_bytes, partial(_tell, observers) if observers else None)

    @property
    def settings_now(self) -> Settings:
        """Settings with the changes since the start."""
        return self.settings if self.reloaded is None else self.reloaded()

    async def read_request(
        self,
        wire_type: type[W],
        converter: cattrs.Converter,
        unsupported: NeutralValues,
        parse: Callable[[W, JsonObject], T],
        *,
        files: bool = False,
        look: Callable[[JsonObject], None] | None = None,
        adapts: bool = False,
    ) -> tuple[W, T]:
        """Return the current request's JSON body as a wire type, and the result of parsing that.

        Args:
            parse: Function of the wire object and the raw body that returns the request; it runs on a worker
                thread if the body is large.
            files: True if the body may hold images and other files, which raises its size limit.
            look: Function that inspects the body before any check.
            adapts: True if the request may name an adapter (`lora`).

        Raises:
            ProblemError: 400, 413, 415 or 503; errors in the body are named by their path.
        """

        audited = audited_request()

        def parse_body(body: JsonObject) -> tuple[W, T]:
            if audited is not None and isinstance(body, dict):
                audited.record_body(body)
            if look is not None and isinstance(body, dict):
                look(body)
            refuse_unsupported(body, unsupported if adapts else _ADAPTERS | dict(unsupported))
            wire = structure(body, wire_type, converter)
            return wire, parse(wire, body)

        resources, client = request_resources(), request_client()
        return await self.bodies.parse(request, resources, parse_body, files=files, client=client)

    async def read_body(self, wire_type: type[W], converter: cattrs.Converter) -> W:
        wire, _ = await self.read_request(wire_type, converter, {}, lambda *_: None)
        return wire

    async def with_files(self, inference: InferenceRequest) -> InferenceRequest:
        """Return the request with its caller's rights, and the contents of the files that it names by URL.
        Raises ProblemError: 400 that names what cannot be fetched, 503 if too much is being fetched.
        """
        if (audited := audited_request()) is not None:
            audited.model = inference.key.model
        inference = for_caller(inference, isolates=self.settings.isolate_prefixes)
        return await self.fetcher.complete(inference, lambda: self.bodies.account(request_resources()))

    async def read_form(self) -> Form:
        """Return the current request's form, whose file stays on disk until the request ends. Raises
        ProblemError: 400, 413, 415, 503 or 507.
        """
        return await self.forms.read(request, request_resources())

    async def spool(self, data: bytes) -> Path:
        """Write data to a file in the upload folder that is kept until the current request ends. Raises
        ProblemError: 503 if other uploads use up the budget, 507 if the disk is full.
        """
        file = SpooledFile(self.forms.folder, request_resources())
        file.expect(len(data))
        await file.write(data)
        await file.flush()
        return file.path


def _tell(observers: Sequence[Callable[[Sequence[bytes]], None]], parts: Sequence[bytes]) -> None:
    if any(b"authorization" in part or b"headers" in part for part in parts):
        # What a request sends to an MCP server on its caller's behalf is kept nowhere.
        parts = [_SECRETS.sub(rb'\1"[hidden]"', b"".join(parts))]
    for observe in observers:
        observe(parts)

"""Routes of Ollama's protocol that fetch and delete models; programs of the server's machine use them.

Source: docs/api.md of Ollama, August 2026 ("Pull a Model", "Delete a Model").
"""

from __future__ import annotations

from typing import Any

from quart import Blueprint, Response

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.http.answering.http_responses import empty_response, json_response
from greenroom.http.answering.protocols.route_description import FOR_OPERATORS, JSON, LINES, described
from greenroom.http.answering.requests.route_services import RouteServices
from greenroom.http.answering.streaming.progress_stream import progress_response
from greenroom.http.encoding.json_encoding import json_ascii
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.schemas.events.events import Failed
from greenroom.schemas.ollama.converter import OLLAMA
from greenroom.schemas.ollama.requests import DeleteRequest, PullRequest
from greenroom.schemas.problems import missing
from greenroom.schemas.protocols.download_protocol import (
    DeleteModel,
    ModelDeleted,
    Pulled,
    PullModel,
    PullStatus,
)

_PREFIXES = ("hf.co/", "huggingface.co/", "https://hf.co/", "https://huggingface.co/")
"""Beginnings of a hub's model in Ollama's names."""

_STAGES = {"resolving": "pulling manifest", "waiting": "pulling manifest"}


def pull_routes(services: RouteServices) -> Blueprint:
    """Return the blueprint of the routes that fetch and delete models."""
    routes = loopback_blueprint("ollama pulls")
    downloads = services.refs.downloads

    @routes.post("/api/pull")
    @described(
        "Fetch a model of the hub, with its progress in Ollama's form",
        body=PullRequest,
        converter=OLLAMA,
        media=(LINES, JSON),
        problems=(*FOR_OPERATORS, 404, 409, 503),
    )
    async def pull() -> Response:
        wire = await services.read_body(PullRequest, OLLAMA)
        trusts = services.settings.trust_remote_code
        message = PullModel(_name(wire), trust_remote_code=trusts, attached=True)
        if wire.stream is False:
            await ask_actor(downloads, message, Pulled)
            return json_response({"status": "success"})
        return await progress_response(downloads, message, _line, LINES)

    @routes.delete("/api/delete")
    @described(
        "Delete a model's files after it was unloaded",
        body=DeleteRequest,
        converter=OLLAMA,
        media=(),
        problems=(*FOR_OPERATORS, 404, 409, 503),
    )
    async def delete() -> Response:
        wire = await services.read_body(DeleteRequest, OLLAMA)
        await ask_actor(downloads, DeleteModel(_name(wire)), ModelDeleted)
        return empty_response()

    return routes


def _name(wire: PullRequest | DeleteRequest) -> str:
    """Return the hub id in a name of Ollama's."""
    name = wire.model or wire.name
    if not name:
        raise missing("model")
    prefix = next((each for each in _PREFIXES if name.startswith(each)), "")
    return name.removeprefix(prefix).removesuffix(":latest")


def _line(event: Any) -> bytes:
    """Return an event as a line of Ollama's progress."""
    match event:
        case PullStatus(model=model, progress=progress):
            line: dict[str, object] = {"status": _STAGES.get(progress.stage, f"pulling {model}")}
            if progress.nbytes:
                line |= {"digest": model, "total": progress.nbytes, "completed": progress.received}
        case Pulled():
            line = {"status": "success"}
        case Failed(problem):
            line = {"error": problem.detail}
        case _:
            return b""
    return json_ascii(line) + b"\n"

"""Routes of Ollama's model API: `/api/tags`, `/api/ps`, `/api/show`, `/api/version`; changes are refused."""

from __future__ import annotations

import hashlib
from typing import Any, cast

from quart import Blueprint, Response, request

from greenroom.actors.core.ref import ask_actor
from greenroom.http.answering.current_request import describe_models
from greenroom.http.answering.event_stream import progress_response
from greenroom.http.answering.http_responses import empty_response, json_response
from greenroom.http.answering.protocols import FOR_OPERATORS, JSON, LINES, described
from greenroom.http.answering.request_parameters import parse_model_key
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.encoding.encoding import json_ascii, timestamp
from greenroom.http.guard.host_guard import loopback_blueprint
from greenroom.schemas.events.events import Failed
from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.models.capabilities import capability_summary
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.problems import Problem, ProblemError, missing
from greenroom.schemas.protocols.download_protocol import (
    DeleteModel,
    ModelDeleted,
    Pulled,
    PullModel,
    PullStatus,
)
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.wire.ollama import OLLAMA, DeleteRequest, PullRequest, ShowRequest

API_VERSION = "0.13.0"  # Version of Ollama whose API is implemented; clients refuse old ones

_FIXED = "models come from the hub, and stay as they are"
NOT_SERVED = {
    "/api/push": _FIXED,
    "/api/create": _FIXED,
    "/api/copy": (
        "a further name of a model is an `alias` or a profile (`[profiles.NAME]`) in the server's settings"
    ),
}
"""Routes of POST that are refused, and why."""


def model_routes(services: RouteServices) -> Blueprint:
    routes = Blueprint("ollama models", __name__)
    pool = services.refs.pool

    @routes.get("/api/version")
    @described("Show the version of Ollama that is emulated")
    async def version() -> Response:
        return json_response({"version": API_VERSION})

    @routes.get("/api/tags")
    @described("List the models")
    async def tags() -> Response:
        return json_response({"models": list(map(tagged, await describe_models(pool)))})

    @routes.get("/api/ps")
    @described("List the models in memory")
    async def loaded() -> Response:
        status = await ask_actor(pool, DescribePool(), PoolStatus)
        ready = {model.key.model: model for model in status.models if model.state is ModelState.READY}
        found = await describe_models(pool)
        listed = [running(model, ready[model.id].expires_at) for model in found if model.id in ready]
        return json_response({"models": listed})

    @routes.post("/api/show")
    @described("Describe a model", body=ShowRequest, converter=OLLAMA, problems=(404,))
    async def show() -> Response:
        _, name = await services.read_request(ShowRequest, OLLAMA, {}, _name)
        [found, *_] = await describe_models(pool, name)
        return json_response(shown(found))

    @described("Refuse to change the models", status=None, problems=(501,))
    async def refuse() -> Response:
        detail = f"`{request.path}` is not served here: {NOT_SERVED[request.path]}."
        raise ProblemError(Problem(501, "not_implemented", detail))

    for path in NOT_SERVED:
        routes.add_url_rule(path, path.removeprefix("/api/"), refuse, methods=["POST"])
    return routes


def _name(wire: ShowRequest, _: JsonObject) -> str:
    if (name := wire.model or wire.name) is None:
        raise missing("model")
    return parse_model_key(name).model


_SUFFIX = "{# .Suffix #}"
"""Mark by which Continue knows models that take a suffix, a comment in Jinja."""

_NEVER = "9999-12-31T23:59:59Z"
_LATEST = 253_402_300_799  # The same as Unix time: durations of `keep_alive` may be longer


def tagged(model: ModelDescription) -> dict[str, Any]:
    """Return a model's entry in the answer to `/api/tags`."""
    identity = f"{model.id}\0{model.created}"
    return {
        "name": model.id,
        "model": model.id,
        "modified_at": timestamp(model.created),
        "size": model.nbytes,
        "digest": hashlib.sha256(identity.encode(errors="backslashreplace")).hexdigest(),
        "details": _details(model),
        "capabilities": _capabilities(model),
    }


def running(model: ModelDescription, expires_at: float | None = None) -> dict[str, Any]:
    """Return a loaded model's entry in the list of running models. `expires_at`: Unix time in seconds at
    which it is unloaded, unless others need its memory earlier; None for never.
    """
    return {
        **{
            name: value
            for name, value in tagged(model).items()
            if name not in ("modified_at", "capabilities")
        },
        "expires_at": _NEVER if expires_at is None else timestamp(min(expires_at, _LATEST)),
        "size_vram": model.nbytes,
        "context_length": _context(model) or 0,
    }


def shown(model: ModelDescription) -> dict[str, Any]:
    """Return the full description of a model."""
    return {
        "modelfile": f"FROM {model.id}\n",
        "parameters": "\n".join(f"{name} {value}" for name, value in _parameters(model)),
        "template": model.template + _SUFFIX if model.fills_gaps else model.template,
        "details": _details(model),
        "model_info": _model_info(model),
        "capabilities": _capabilities(model),
        "modified_at": timestamp(model.created),
    }


def _capabilities(model: ModelDescription) -> list[str]:
    """Return a model's capabilities in Ollama's terms, or its type if Ollama has no such models."""
    record = model.record
    if record is not None and record.model_type not in ("text", "vision"):
        return ["embedding" if record.model_type == "embeddings" else record.model_type]
    inputs = () if record is None else record.inputs
    can = {
        "completion": True,
        "tools": bool(model.takes_tools),
        "vision": "image" in inputs,
        "audio": "audio" in inputs,
        "insert": model.fills_gaps,
        "thinking": bool(model.thinks),
    }
    return [name for name, has in can.items() if has]


def _details(model: ModelDescription) -> dict[str, Any]:
    architecture = model.record.architecture if model.record is not None else ""
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": architecture,
        "families": [architecture] if architecture else [],
        "parameter_size": _parameter_size(model.parameters),
        "quantization_level": model.quantization,
    }


def _model_info(model: ModelDescription) -> dict[str, Any]:
    if model.record is None:
        return {"general.basename": model.id}
    architecture = model.record.architecture
    vectors = model.record.vectors
    sizes = {
        "context_length": _context(model),
        "embedding_length": None if vectors is None else vectors.dimensions,
    }
    return {
        "general.architecture": architecture,
        "general.basename": model.id,
        "general.parameter_count": model.parameters,
        **{f"{architecture}.{name}": size for name, size in sizes.items() if size is not None},
    }


def _context(model: ModelDescription) -> int | None:
    """Return the context length in tokens; None for audio models, which have none."""
    summary = {} if model.record is None else capability_summary(model.record)
    return cast("int | None", summary.get("context_length"))


def _parameters(model: ModelDescription) -> list[tuple[str, Any]]:
    """Return the default parameters of requests; the client Continue reads the context from `num_ctx`."""
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    values = {**model.generation, **model.generation_defaults}
    given = [(name.replace("repetition", "repeat"), values[name]) for name in names if name in values]
    context = _context(model)
    return given if context is None else [("num_ctx", context), *given]


def _parameter_size(parameters: int | None) -> str:
    if parameters is None:
        return ""
    return f"{parameters / 1e9:.1f}B" if parameters >= 1e9 else f"{parameters / 1e6:.1f}M"


# Routes of Ollama's protocol that fetch and delete models; programs of the server's machine use them.
#
# Source: docs/api.md of Ollama, August 2026 ("Pull a Model", "Delete a Model").

_PREFIXES = ("hf.co/", "huggingface.co/", "https://hf.co/", "https://huggingface.co/")
"""Beginnings of a hub's model in Ollama's names."""

_STAGES = {"resolving": "pulling manifest", "waiting": "pulling manifest"}


def pull_routes(services: RouteServices) -> Blueprint:
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
        message = PullModel(_hub_id(wire), trust_remote_code=trusts, attached=True)
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
        await ask_actor(downloads, DeleteModel(_hub_id(wire)), ModelDeleted)
        return empty_response()

    return routes


def _hub_id(wire: PullRequest | DeleteRequest) -> str:
    name = wire.model or wire.name
    if not name:
        raise missing("model")
    prefix = next((each for each in _PREFIXES if name.startswith(each)), "")
    return name.removeprefix(prefix).removesuffix(":latest")


def _line(event: Any) -> bytes:
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

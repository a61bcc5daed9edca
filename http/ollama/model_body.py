"""Model descriptions in the format of `/api/tags` and `/api/show`."""

from __future__ import annotations

import hashlib
from typing import Any, cast

from greenroom.http.encoding.timestamps import timestamp
from greenroom.schemas.models.capability_summary import capability_summary
from greenroom.schemas.models.model_description import ModelDescription

_SUFFIX = "{# .Suffix #}"
"""Mark by which Continue knows models that take a suffix, a comment in Jinja."""

_NEVER = "9999-12-31T23:59:59Z"
_LATEST = 253_402_300_799
"""The same as Unix time: durations of `keep_alive` may be longer."""


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
    """Return a loaded model's entry in the list of running models.

    Args:
        expires_at: Unix time in seconds at which it is unloaded, unless others need its memory earlier; None
            for never.
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

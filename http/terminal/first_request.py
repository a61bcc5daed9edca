"""Example request for the first model, which `greenroom serve` prints."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenroom.schemas.models.capabilities import ModelType

if TYPE_CHECKING:
    from greenroom.actors.core.ref import Ref
    from greenroom.schemas.protocols.pool_protocol import PoolMessage
    from greenroom.schemas.settings.settings import Settings

_CHAT = ("-N", "chat/completions", {"messages": [{"role": "user", "content": "Hello!"}], "stream": True}, "")
_BODIES: Mapping[ModelType, tuple[str, str, dict[str, Any], str]] = {
    "text": _CHAT,
    "vision": _CHAT,
    "embeddings": ("", "embeddings", {"input": "Hello!"}, ""),
    "rerank": ("", "rerank", {"query": "Who walks?", "documents": ["He walks.", "It rains."]}, ""),
    "speech": ("", "audio/speech", {"input": "Good morning."}, "-o morning.mp3"),
}


async def kind_of_default(pool: Ref[PoolMessage]) -> ModelType:
    """Return the type of the first model; `text` if it is not downloaded yet."""
    from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions

    found = await pool.ask(DescribeModel("default"), ModelDescriptions)
    record = found.models[0].record if isinstance(found, ModelDescriptions) else None
    return "text" if record is None else record.model_type


async def served_ids(pool: Ref[PoolMessage], settings: Settings) -> list[str]:
    """Return the ids of the operator's models for clients, or the demo model's if there are none."""
    from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions

    names = settings.models or ("default",)
    found = [await pool.ask(DescribeModel(name), ModelDescriptions) for name in names]
    known = [answer.models[0].id for answer in found if isinstance(answer, ModelDescriptions)]
    listed = await pool.ask(DescribeModel(None), ModelDescriptions) if settings.model_dir else None
    if isinstance(listed, ModelDescriptions):
        known += [model.id for model in listed.models if _is_inside(model.folder, settings.model_dir)]
    return list(dict.fromkeys(known))


def _is_inside(folder: str | None, parents: Iterable[str]) -> bool:
    if folder is None:
        return False
    path = Path(folder).resolve()
    return any(path.is_relative_to(Path(parent).expanduser().resolve()) for parent in parents)


def first_request(address: str, kind: ModelType) -> str:
    """Return a curl command that a model of that type answers under the name `default`."""
    if kind == "transcription":
        return f"curl {address}/v1/audio/transcriptions -F model=default -F file=@recording.wav"
    before, path, fields, behind = _BODIES[kind]
    body = json.dumps({"model": "default", **fields})
    header = "-H 'content-type: application/json'"
    words = ("curl", before, f"{address}/v1/{path}", header, f"-d '{body}'", behind)
    return " ".join(filter(None, words))

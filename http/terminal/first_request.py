"""Example request for the first model, which `greenroom serve` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from greenroom.schemas.models.capabilities import ModelType

if TYPE_CHECKING:
    from greenroom.actors.core.ref import Ref
    from greenroom.schemas.protocols.pool_protocol import PoolMessage

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


async def served_ids(pool: Ref[PoolMessage], models: Sequence[str]) -> list[str]:
    """Return the ids of the operator's models for clients, or the demo model's if there are none.

    Args:
        models: Names of the models as the operator wrote them.
    """
    from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions

    found = [await pool.ask(DescribeModel(model), ModelDescriptions) for model in models or ("default",)]
    known = (answer.models[0].id for answer in found if isinstance(answer, ModelDescriptions))
    return list(dict.fromkeys(known))


def first_request(address: str, kind: ModelType) -> str:
    """Return a curl command that a model of that type answers under the name `default`."""
    if kind == "transcription":
        return f"curl {address}/v1/audio/transcriptions -F model=default -F file=@recording.wav"
    before, path, fields, behind = _BODIES[kind]
    body = json.dumps({"model": "default", **fields})
    header = "-H 'content-type: application/json'"
    words = ("curl", before, f"{address}/v1/{path}", header, f"-d '{body}'", behind)
    return " ".join(filter(None, words))

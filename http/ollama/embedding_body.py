"""Formatting of responses to `/api/embed` and `/api/embeddings`."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.http.encoding.json_encoding import json_bytes
from greenroom.http.encoding.vectors import vector_json
from greenroom.http.ollama.answer_body import nanoseconds
from greenroom.schemas.events.events import Finished
from greenroom.schemas.events.result_events import Vector


def embed_body(name: str, vectors: Sequence[Vector], finished: Finished | None) -> bytes:
    """Return the response to `/api/embed`, with vectors scaled to length 1.

    Args:
        name: Model name from the request.
        vectors: Vectors in the order of their texts.
        finished: Final event; None if the model was only loaded.
    """
    head = json_bytes({"model": name}).removesuffix(b"}")
    embeddings = b",".join(vector_json(vector, unit=True) for vector in vectors)
    ending = {} if finished is None else _ending(finished)
    tail = json_bytes(ending).removeprefix(b"{")
    return b'%b,"embeddings":[%b]%b%b' % (head, embeddings, b"," if ending else b"", tail)


def old_embeddings_body(vectors: Sequence[Vector]) -> bytes:
    """Return the response to `/api/embeddings`: the vector unscaled, or an empty one for an empty text."""
    return b'{"embedding":%b}' % (vector_json(vectors[0]) if vectors else b"[]")


def _ending(finished: Finished) -> dict[str, int]:
    timing = finished.timing
    return {
        "total_duration": nanoseconds(timing.queued + timing.prefill),
        "load_duration": nanoseconds(timing.queued),
        "prompt_eval_count": finished.usage.prompt,
    }

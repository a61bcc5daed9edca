"""Answers to `/api/embed` and `/api/embeddings`."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.http.encoding.json_encoding import json_bytes
from greenroom.http.encoding.vectors import vector_json
from greenroom.http.ollama.answer_body import nanoseconds
from greenroom.schemas.events.events import Finished
from greenroom.schemas.events.result_events import Vector


def embed_body(name: str, vectors: Sequence[Vector], finished: Finished | None) -> bytes:
    """Return the answer of `/api/embed`, whose vectors always have length 1.

    Args:
        name: What the client called the model.
        vectors: In order.
        finished: None if the model was only loaded.
    """
    head = json_bytes({"model": name}).removesuffix(b"}")
    embeddings = b",".join(vector_json(vector, unit=True) for vector in vectors)
    ending = {} if finished is None else _ending(finished)
    tail = json_bytes(ending).removeprefix(b"{")
    return b'%b,"embeddings":[%b]%b%b' % (head, embeddings, b"," if ending else b"", tail)


def old_embeddings_body(vectors: Sequence[Vector]) -> bytes:
    """Return the answer of `/api/embeddings`: the vector as the model made it, none if there was no text."""
    return b'{"embedding":%b}' % (vector_json(vectors[0]) if vectors else b"[]")


def _ending(finished: Finished) -> dict[str, int]:
    timing = finished.timing
    return {
        "total_duration": nanoseconds(timing.queued + timing.prefill),
        "load_duration": nanoseconds(timing.queued),
        "prompt_eval_count": finished.usage.prompt,
    }

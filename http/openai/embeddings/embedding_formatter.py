"""Formatting of responses to `POST /v1/embeddings`."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.http.encoding.json_encoding import json_bytes
from greenroom.http.encoding.vectors import vector_base64, vector_json
from greenroom.schemas.events.events import Usage
from greenroom.schemas.events.result_events import Vector


def embedding_list(model: str, vectors: Sequence[Vector], usage: Usage, encoding_format: str) -> bytes:
    """Return the response as JSON; this is slow for many vectors, but releases the GIL between them.

    Args:
        vectors: Vectors in the order of their texts.
        encoding_format: `float` or `base64`.
    """
    encode = vector_base64 if encoding_format == "base64" else vector_json
    entries = b",".join(
        b'{"object":"embedding","index":%d,"embedding":%b}' % (vector.index, encode(vector))
        for vector in vectors
    )
    tokens = {"prompt_tokens": usage.prompt, "total_tokens": usage.prompt}
    tail = json_bytes({"model": model, "usage": tokens}).removeprefix(b"{")
    return b'{"object":"list","data":[%b],%b' % (entries, tail)

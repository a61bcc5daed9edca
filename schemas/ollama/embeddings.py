"""Request bodies of Ollama's `/api/embed` and `/api/embeddings`.

Source: docs/api.md and api/types.go of Ollama, August 2026.
"""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.schemas.ollama.converter import OLLAMA
from greenroom.schemas.wire import WireError, wrong_type

MAX_TEXTS = 16_384
"""Maximum number of texts in a request."""


@attrs.frozen
class Texts:
    """The texts to embed; an empty string or array only loads the model."""

    texts: tuple[str, ...]


@attrs.frozen
class EmbedRequest:
    """The body of `POST /api/embed`."""

    model: str
    input: Texts | None = None
    truncate: bool | None = None
    dimensions: int | None = None
    options: dict[str, Any] | None = None
    keep_alive: Any = None


@attrs.frozen
class OldEmbeddingsRequest:
    """The body of `POST /api/embeddings`."""

    model: str
    prompt: str | None = None
    options: dict[str, Any] | None = None
    keep_alive: Any = None


def _texts(value: Any, _: Any) -> Texts:
    if isinstance(value, str):
        return Texts((value,) if value else ())
    if not isinstance(value, list):
        raise wrong_type("a string or an array of strings", value)
    if len(value) > MAX_TEXTS:
        raise WireError(f"must hold at most {MAX_TEXTS} texts, but has {len(value)}")
    for item in value:
        if not isinstance(item, str):
            raise wrong_type("an array of strings", item)
    return Texts(tuple(value))


OLLAMA.register_structure_hook(Texts, _texts)

"""Models that do something else than continue text, and what each answers if it is well."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from greenroom.tests.attack.requests import files

KINDS = ("sees", "embeds", "ranks", "speaks", "hears")
"""Names of models, each of which says what it does; all other models continue text."""


def make_model(kind: str, folder: Path) -> Path:
    """Make a tiny model that does what its name says, in a folder of that name."""
    from greenroom.tests.support.spoiled.spoiled_kinds import MAKERS

    (folder / kind).mkdir(parents=True)
    MAKERS[kind](folder / kind)
    return folder / kind


def plain_request(model: str) -> tuple[str, dict[str, Any]]:
    """Return a path and what httpx sends there: a small request that a model which is well answers."""
    match model:
        case "embeds":
            return "/v1/embeddings", {"json": {"model": model, "input": "Hello"}}
        case "ranks":
            return "/v1/rerank", {"json": {"model": model, "query": "Hello", "documents": ["Hello"]}}
        case "speaks":
            return "/v1/audio/speech", {"json": {"model": model, "input": "Hello", "response_format": "pcm"}}
        case "hears":
            file = {"file": ("tone.wav", files.content("sound: plain"), "audio/wav")}
            return "/v1/audio/transcriptions", {"data": {"model": model}, "files": file}
        case "sees":
            image = base64.b64encode(files.content("image: plain")).decode()
            url = {"url": f"data:image/jpeg;base64,{image}"}
            content: Any = [{"type": "image_url", "image_url": url}, {"type": "text", "text": "Hello"}]
        case _:
            content = "Hello"
    body = {"model": model, "max_tokens": 2, "messages": [{"role": "user", "content": content}]}
    return "/v1/chat/completions", {"json": body}

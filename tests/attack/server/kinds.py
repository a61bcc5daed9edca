"""Tiny models of other types than text generation, and a valid request to each."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from greenroom.tests.attack.requests import files

KINDS = ("sees", "embeds", "ranks", "speaks", "hears")
"""Model names that tell the model's type; models of other names generate text."""


def make_model(kind: str, folder: Path) -> Path:
    """Make a tiny model of the type that `kind` names, in a folder of that name."""
    from greenroom.tests.support.spoiled.spoiled_kinds import MAKERS

    (folder / kind).mkdir(parents=True)
    MAKERS[kind](folder / kind)
    return folder / kind


def plain_request(model: str) -> tuple[str, dict[str, Any]]:
    """Return the path and httpx2 arguments of a small valid request."""
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

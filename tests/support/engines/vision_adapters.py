"""Adapters of tiny vision models, with pictures and requests for them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.libraries import import_vision_libraries
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.engine.vision.vision_adapter import VisionAdapter, open_vision_adapter
from greenroom.schemas.messages.messages import ContentPart, ImagePart, Message, Role, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings


def picture(width: int = 96, height: int = 64, seed: int = 0) -> Image.Image:
    """Return an image of noise; equal seeds give equal images."""
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(noise)


def png(width: int = 96, height: int = 64, seed: int = 0) -> bytes:
    """Return an image of noise as a PNG file."""
    file = io.BytesIO()
    picture(width, height, seed).save(file, "PNG")
    return file.getvalue()


def message(*parts: str | bytes | ContentPart, role: Role = "user", **fields: Any) -> Message:
    """Return a message of strings, image files and parts."""
    content: list[ContentPart] = []
    for part in parts:
        match part:
            case str():
                content.append(TextPart(part))
            case bytes():
                content.append(ImagePart(part, param=f"parts[{len(content)}]"))
            case _:
                content.append(part)
    return Message(role, tuple(content), **fields)


def asking(messages: Sequence[Message], overrides: Any = None, **fields: Any) -> InferenceRequest:
    """Return a chat request."""
    return InferenceRequest("r", ModelKey("m"), ChatInput(tuple(messages), **fields), overrides or {})


def seeing_adapter(folder: Path, **settings: Any) -> VisionAdapter:
    """Return the adapter of a model folder."""
    import_vision_libraries()
    tokenizer = load_tokenizer(folder)
    adapter = open_vision_adapter(folder, detect(folder), tokenizer, Settings(**settings))
    assert isinstance(adapter, VisionAdapter)
    return adapter

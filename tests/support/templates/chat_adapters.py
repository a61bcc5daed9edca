"""Adapters for the tokenizers of `chat_tokenizers`, and requests to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import CapabilityRecord, Family
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings

Folder = Callable[..., Path]
MakeAdapter = Callable[..., Adapter]
FAMILY_OF_TEMPLATE: dict[str, Family] = {
    "thinking": "qwen",
    "deepseek": "default",
    "seed_oss": "default",
    "strict_system": "default",
    "parts": "default",
}
"""Families of templates that are not named after one."""


def adapter_of(folder: Path, context: int = 4096, family: Any = "default", **settings: Any) -> Adapter:
    record = CapabilityRecord("text", family, "llama", context)
    return make_adapter(record, load_tokenizer(folder), Settings(**settings))


def chat(*texts: str, **overrides: Any) -> InferenceRequest:
    messages = tuple(
        Message("assistant" if index % 2 else "user", (TextPart(text),)) for index, text in enumerate(texts)
    )
    return InferenceRequest("r", ModelKey("m"), ChatInput(messages), overrides)


def raw(prompt: str | tuple[Any, ...], **overrides: Any) -> InferenceRequest:
    return InferenceRequest("r", ModelKey("m"), RawInput(prompt), overrides)


def refusal(adapter: Adapter, request: InferenceRequest) -> Any:
    with pytest.raises(ProblemError) as caught:
        adapter.prepare_input(request)
    assert caught.value.problem.status == 400
    return caught.value.problem

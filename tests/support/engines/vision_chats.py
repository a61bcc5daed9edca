"""Random chats with tools and schemas, some about images, and mlx-vlm's own answers to them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from PIL import Image

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.grammar.matcher import Matcher
from greenroom.schemas.messages.generation import Overrides
from greenroom.schemas.messages.messages import (
    ImagePart,
    Message,
    ReasoningSettings,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, JsonSchemaFormat
from greenroom.schemas.model_key import ModelKey
from greenroom.tests.support.engines.vision_engines import library, picture
from greenroom.tests.support.grammars.random_schemas import RandomSchemas

DEMANDS = ("nothing", "tools", "begun call", "strict call", "forced call", "schema", "schema or call")
"""Constraints on a chat's answer. For begun and strict calls, a logit bias makes the model start a call."""

_WORDS = ("red", "tall", "why", "where", "below", "the", "of")
_DRAWN = {"begun call": (1.0, 4.0), "strict call": (4.0, 8.0)}
"""Range of the logit bias on the call marker: calls are occasional, or nearly certain."""


@attrs.frozen
class VisionChat:
    """A request with the data that mlx-vlm needs to answer it.

    Args:
        demand: One of `DEMANDS`.
        images: Images in the conversation's order.
    """

    demand: str
    request: InferenceRequest
    images: tuple[Image.Image, ...]

    @property
    def input(self) -> ChatInput:
        assert isinstance(self.request.input, ChatInput)
        return self.request.input

    @property
    def schema(self) -> Any:
        """JSON Schema of the whole answer."""
        assert isinstance(self.request.response_format, JsonSchemaFormat)
        return self.request.response_format.schema


class RandomChats:
    """A reproducible source of random chats, every other one with one or two images."""

    def __init__(self, adapter: Adapter, seed: str) -> None:
        self._adapter = adapter
        self._choose = random.Random(seed)
        self._schemas = RandomSchemas(self._choose.randrange(1000), formats=False)

    def chat(self, number: int) -> VisionChat:
        demand = DEMANDS[number // 2 % len(DEMANDS)]
        images = [self._picture() for _ in range(self._choose.choice([1, 2]))] if number % 2 else []
        messages = self._messages(images, calls=demand != "nothing" and self._choose.random() < 0.5)
        lengths = (20, 60, 150, 300) if demand in ("strict call", "forced call") else (10, 20, 40, 100)
        overrides: Overrides = {"temperature": 0.0, "max_tokens": self._choose.choice(lengths)}
        tools: tuple[Tool, ...] = ()
        choice = ToolChoice()
        if demand not in ("nothing", "schema"):
            strict = demand == "strict call"
            names = self._choose.choice([("look_up",), ("look_up", "find_all")])
            tools = tuple(Tool(name, parameters=self._schemas.object(1), strict=strict) for name in names)
        if demand in ("begun call", "strict call"):
            marker = self._adapter.tokenizer.added_tokens["<tool_call>"]
            overrides = {**overrides, "logit_bias": ((marker, self._choose.uniform(*_DRAWN[demand])),)}
        if demand == "forced call":
            choice = self._choose.choice([ToolChoice("required"), ToolChoice("named", "look_up")])
        form = JsonSchemaFormat(self._schemas.object(0)) if demand.startswith("schema") else None
        chat = ChatInput(
            tuple(messages),
            tools,
            choice,
            parallel_tool_calls=demand != "forced call" or self._choose.random() < 0.3,
            thinking=ReasoningSettings(enabled=False),
        )
        request = InferenceRequest(str(number), ModelKey("tiny"), chat, overrides, response_format=form)
        return VisionChat(demand, request, tuple(images))

    def _picture(self) -> Image.Image:
        return picture(self._choose.randrange(5), self._choose.choice([60, 100, 300]))

    def _messages(self, images: list[Image.Image], *, calls: bool) -> list[Message]:
        """Return a conversation; with `calls`, its last image is the result of a tool call."""
        parts = [ImagePart(_file(image)) for image in images]
        words = TextPart(" ".join(self._choose.choices(_WORDS, k=8)))
        if not calls:
            return [Message("user", (TextPart("Look at "), *parts, words))]
        call = ToolCall("call_1", "look_up", '{"city": "Rome"}')
        return [
            Message("user", (TextPart("Look at "), *parts[:-1])),
            Message("assistant", (), tool_calls=(call,)),
            Message("tool", (words, *parts[-1:]), tool_call_id="call_1"),
        ]


def answer_of_library(folder: Path, adapter: Adapter, chat: VisionChat) -> list[int]:
    """Return the greedy answer of `mlx_vlm.stream_generate`, constrained by the chat's grammar."""
    from mlx_vlm.generate import stream_generate

    model, processor = library(folder)
    prepared = adapter.prepare_input(chat.request)
    processors = [_masking(prepared.matcher)] if prepared.matcher is not None else []
    answer = stream_generate(
        model,
        processor,
        adapter.render_prompt(chat.request).text or "",
        image=list(chat.images) or None,  # type: ignore[arg-type]
        max_tokens=prepared.max_tokens,
        temperature=0.0,
        logit_bias=dict(prepared.parameters.logit_bias) or None,
        logits_processors=processors,
    )
    tokens = [response.token for response in answer if response.token is not None]
    end = next((at for at, token in enumerate(tokens) if token in prepared.stop_token_ids), len(tokens))
    return tokens[: min(end, prepared.max_tokens)]


def _masking(matcher: Matcher) -> Callable[[Any, Any], Any]:
    """Return a logits processor that masks the tokens that the grammar forbids."""
    import mlx.core as mx

    read: int | None = None

    def mask(tokens: Any, logits: Any) -> Any:
        nonlocal read
        written = np.array(tokens).tolist()
        for token in written[len(written) if read is None else read :]:  # skip the prompt
            matcher.accept_token(token)
        read = len(written)
        allowed = matcher.mask()
        return logits if allowed is None else mx.where(allowed.dense(logits.shape[-1]), logits, -mx.inf)

    return mask


def _file(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()

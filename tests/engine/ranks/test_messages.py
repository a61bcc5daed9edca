"""Tests that messages between ranks carry schema classes, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from greenroom.engine.ranks.messages import FrameReader, frame
from greenroom.schemas.events.events import Finished, TextDelta, Usage
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest, JsonSchemaFormat
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings

REQUEST = InferenceRequest(
    "one",
    ModelKey("tiny"),
    ChatInput((Message("user", (TextPart("Hello"),)),)),
    {"temperature": 0.0, "logit_bias": {7: -1.0}},
    response_format=JsonSchemaFormat({"type": "object", "properties": {"a": {"type": "null"}}}),
)


@pytest.mark.parametrize(
    "value",
    [
        REQUEST,
        PreparedPrompt((1, 2, 3), frozenset({4}), 5, checkpoints=(1,)),
        [("one", TextDelta("å")), ("one", Finished("stop", Usage(3, 4), tokens=(1, 2), raw="x"))],
        Settings(memory_bytes=1 << 30),
        {"folder": Path("/models"), "split": (1, 2), "bytes": b"\0"},
        {"minimum": -(10**30), "seeds": [2**64, 2**64 - 1, -(2**63)]},
    ],
)
def test_messages_come_out_as_they_went_in(value: Any) -> None:
    data, reader = frame(("submit", value)), FrameReader()
    pieces = [data[:3], data[3:9], data[9:]]
    assert [message for piece in pieces for message in reader.feed(piece)] == [("submit", value)]


@pytest.mark.parametrize("name", ["subprocess:Popen", "greenroom.schemas.problems:attrs", "os:system"])
def test_no_other_class_can_be_named(name: str) -> None:
    data = msgspec.msgpack.encode({"tuple": [{name: [["args", "true"]]}]})
    with pytest.raises(ValueError, match="may not be sent"):
        FrameReader().feed(len(data).to_bytes(4, "big") + data)
    with pytest.raises(TypeError, match="cannot be sent"):
        frame((object(),))
    with pytest.raises(ValueError, match="too long for ranks"):
        FrameReader().feed(b"text")

"""Tools added in the middle of a conversation: callable, without changing the start of the prompt."""

from __future__ import annotations

import pytest

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.adapters.conversation import render_calls
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.schemas.events.events import ToolCallDelta
from greenroom.schemas.messages.messages import Message, TextPart, Tool
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.tests.support.templates.chat_adapters import MakeAdapter

FIRST = Tool("search", "Search for tools")
LATER = Tool("get_weather", "The weather of a city", described=False)


def asked(*tools: Tool) -> InferenceRequest:
    conversation = ChatInput((Message("user", (TextPart("Weather in Rome?"),)),), tools)
    return InferenceRequest("r", ModelKey("m"), conversation)


def names_called(adapter: Adapter, *tools: Tool) -> list[str | None]:
    call = render_calls(adapter.tool_parser, [ParsedCall("get_weather", '{"city": "Rome"}')])
    processor = adapter.new_stream_processor(adapter.prepare_input(asked(*tools)), lambda: "call_1")
    deltas = [*processor.feed(call), *processor.finish()]
    return [delta.name for delta in deltas if isinstance(delta, ToolCallDelta) and delta.name]


@pytest.mark.parametrize("template", ["qwen", "gemma"])
def test_a_tool_that_joins_later_can_be_called_and_leaves_the_prompt_alone(
    adapter: MakeAdapter, template: str
) -> None:
    model = adapter(template)
    assert model.prepare_input(asked(FIRST, LATER)).tokens == model.prepare_input(asked(FIRST)).tokens
    assert model.prepare_input(asked(LATER)).tokens == model.prepare_input(asked()).tokens
    assert names_called(model, FIRST, LATER) == ["get_weather"]
    assert names_called(model, LATER) == ["get_weather"]
    assert names_called(model, FIRST) == []

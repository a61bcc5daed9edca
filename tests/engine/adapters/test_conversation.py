"""Any conversation through any template: all text reaches the model, in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.engine.adapters.adapter import Adapter, make_adapter
from greenroom.engine.adapters.conversation import render_calls
from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.engine.tokenizer.tokenizer import load_tokenizer
from greenroom.schemas.events.events import ToolCallDelta
from greenroom.schemas.messages.messages import Message, TextPart, Tool, ToolCall
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.templates.chat_adapters import MakeAdapter
from greenroom.tests.support.templates.chat_tokenizers import TEMPLATES, make_chat_tokenizer

TOOLS = (Tool("look", "Look it up", {"type": "object", "properties": {"key": {"type": "string"}}}),)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Adapter]:
    import_text_libraries()
    made: dict[str, Adapter] = {}

    def of(name: str) -> Adapter:
        if name not in made:
            folder: Path = make_chat_tokenizer(name, tmp_path_factory.mktemp(name))
            record = CapabilityRecord("text", "default", "llama", 100_000)
            made[name] = make_adapter(record, load_tokenizer(folder), Settings())
        return made[name]

    return of


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """Generate turns of all kinds in any order; results answer earlier calls, texts are unique."""
    messages: list[Message] = []
    open_calls: list[str] = []
    words = iter(f"word{n}" for n in range(1000, 2000))
    for kind in draw(st.lists(st.sampled_from("suactt"), min_size=1, max_size=8)):
        if kind == "t" and not open_calls:
            continue
        text = (TextPart(next(words)),) if draw(st.booleans()) or kind in "su" else ()
        if kind == "t":
            answered = draw(st.sampled_from(open_calls))
            open_calls.remove(answered)
            messages.append(Message("tool", (TextPart(next(words)),), tool_call_id=answered))
        elif kind == "c":
            number = draw(st.integers(1, 3))
            arguments = [json.dumps({"key": next(words)}) for _ in range(number)]
            calls = tuple(ToolCall(f"call_{next(words)}", "look", argument) for argument in arguments)
            open_calls += [call.id for call in calls]
            messages.append(Message("assistant", text, tool_calls=calls))
        elif kind == "a":
            messages.append(Message("assistant", text or (TextPart(next(words)),)))
        else:
            messages.append(Message("system" if kind == "s" else "user", text))
    return tuple(messages) or (Message("user", (TextPart("word"),)),)


def texts_of(messages: tuple[Message, ...]) -> list[str]:
    """Return every unique word of a conversation, in order."""
    texts: list[str] = []
    for message in messages:
        texts += [part.text for part in message.content if isinstance(part, TextPart)]
        texts += [json.loads(call.arguments)["key"] for call in message.tool_calls]
    return texts


@pytest.mark.parametrize("name", TEMPLATES)
@given(data=st.data())
def test_every_text_reaches_the_model_in_order(
    adapter: Callable[[str], Adapter], name: str, data: st.DataObject
) -> None:
    messages = data.draw(conversations())
    tools: Any = data.draw(st.sampled_from([(), TOOLS]))
    model = adapter(name)
    request = InferenceRequest("r", ModelKey("m"), ChatInput(messages, tools))
    read = model.tokenizer.decode(model.prepare_input(request).tokens)
    words = texts_of(messages)
    assert [word for word in words if word not in read] == []
    assert model.traits is not None
    if model.traits.parallel_calls:  # else results come between the calls
        assert words == sorted(words, key=read.index)
    assert ("Look it up" in read) == bool(tools)


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


@pytest.mark.parametrize(
    ("template", "changes", "holds"),
    [
        ("qwen", {}, True),
        ("llama", {}, False),  # its calls begin without a marker
        ("seed_oss", {"name": "a b<"}, False),
        ("qwen", {"parameters": {"properties": {"x": {"$id": "x", "$ref": "#/y"}}}}, True),
    ],
)
def test_a_tool_to_be_held_is_never_refused(
    adapter: MakeAdapter, template: str, changes: dict[str, Any], holds: bool
) -> None:
    held = attrs.evolve(FIRST, held=True, **changes)
    matcher = adapter(template).prepare_input(asked(held)).matcher
    assert (matcher is not None and matcher.constrains_calls) is holds
    assert adapter(template).prepare_input(asked(held, attrs.evolve(LATER, described=True))).matcher is None

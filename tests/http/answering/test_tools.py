"""Streamed arguments of grammar-constrained tool calls, as official clients receive them."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jiter import from_json

from greenroom.http.answering.tools import TextInputReader, text_of
from greenroom.schemas.messages.messages import arguments_of
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients import anthropic_clients, openai_clients
from greenroom.tests.support.grammars.constrained_chats import PERSON, tool
from greenroom.tests.support.grammars.grammar_walks import validate
from greenroom.tests.support.servers.shared_servers import Shared

MODELS = ("qwen3", "llama")  # Tool calls between tags, as in Hermes' format, and as a whole answer.
USER: Any = {"role": "user", "content": "Greet somebody."}
ASKED: dict[str, Any] = {"messages": [USER], "max_tokens": 1_500}


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=tuple(str(tiny_model(kind)) for kind in MODELS), shutdown_timeout=60.0)


def check_fragments(fragments: list[str]) -> None:
    """Assert that each prefix is partial JSON, and the whole is valid. How many there are is up to the
    reader: those that it has not read yet are joined.
    """
    for prefix in accumulate(fragments):
        from_json(prefix.encode(), partial_mode="trailing-strings")
    validate(PERSON, "".join(fragments))


@pytest.mark.parametrize("model", MODELS)
async def test_chat_and_messages_stream_fragments(settings: Settings, shared: Shared, model: str) -> None:
    def chat(client: Any) -> list[str]:
        choice = {"tool_choice": "required", "parallel_tool_calls": False, "reasoning_effort": "none"}
        fields = {**ASKED, **choice, "tools": [tool("greet")], "stream": True}
        deltas = [
            call
            for chunk in client.chat.completions.create(model=model, **fields)
            for answered in chunk.choices
            for call in answered.delta.tool_calls or ()
        ]
        assert {call.index for call in deltas} == {0}
        assert [call.function.name for call in deltas if call.id] == ["greet"]
        return [call.function.arguments for call in deltas if call.function.arguments]

    def messages(client: Any) -> list[str]:
        greet = {"name": "greet", "input_schema": PERSON}
        choice = {"type": "any", "disable_parallel_tool_use": True}
        with client.messages.stream(model=model, tools=[greet], tool_choice=choice, **ASKED) as events:
            fragments = [event.partial_json for event in events if event.type == "input_json"]
            [block] = [block for block in events.get_final_message().content if block.type == "tool_use"]
        assert json.loads("".join(fragments)) == block.input
        return [fragment for fragment in fragments if fragment]

    served = shared(settings)
    check_fragments(await openai_clients.ask(served, chat))
    check_fragments(await anthropic_clients.ask(served, messages))


async def test_a_call_that_is_cut_is_a_valid_beginning(settings: Settings, shared: Shared) -> None:
    def chat(client: Any) -> Any:
        choice = {"tool_choice": "required", "reasoning_effort": "none"}
        fields = {**ASKED, **choice, "tools": [tool("greet")], "max_tokens": 60, "seed": 1}
        with client.chat.completions.stream(model="llama", **fields) as events:
            for _ in events:
                pass
            return events.current_completion_snapshot

    served = shared(settings)
    answer = await openai_clients.ask(served, chat)
    [choice] = answer.choices
    assert choice.finish_reason == "length"
    [call] = choice.message.tool_calls
    assert call.function.name == "greet"
    assert from_json(call.function.arguments.encode(), partial_mode="trailing-strings") is not None


CUTS = st.lists(st.integers(0, 10_000), max_size=8)


def read_in_pieces(arguments: str, cuts: list[int]) -> str:
    reader, at = TextInputReader(), 0
    text = ""
    for cut in [*sorted(cut % (len(arguments) + 1) for cut in cuts), len(arguments)]:
        text += reader.feed(arguments[at:cut])
        at = cut
    return text + reader.finish()


@given(text=st.text(), ascii_only=st.booleans(), spaced=st.booleans(), cuts=CUTS)
def test_any_text_comes_back(text: str, ascii_only: bool, spaced: bool, cuts: list[int]) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only, indent=2 if spaced else None)
    assert text_of(arguments) == text
    assert read_in_pieces(arguments, cuts) == text
    assert text_of(arguments_of(text)) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"code": "1 + 1"}', "1 + 1"),
        ('{"input": "1 + 1", "why": "asked"}', "1 + 1"),
        ('{"a": "x", "b": "y"}', '{"a": "x", "b": "y"}'),
        ('{"input": 5}', '{"input": 5}'),
        ("{}", "{}"),
        ('"x"', '"x"'),
        ('{"code": "1 +', '{"code": "1 +'),
        ('{"input": "1 +', "1 +"),
        ('{"input": "1 \\', "1 "),
        ('{"inp', ""),
        ("", ""),
    ],
)
def test_other_arguments_are_not_lost(arguments: str, text: str) -> None:
    assert text_of(arguments) == text
    for cut in range(len(arguments)):
        assert read_in_pieces(arguments, [cut]) == text


def test_pieces_come_as_they_are_written() -> None:
    reader = TextInputReader()
    pieces = [reader.feed(piece) for piece in ('{"in', 'put": "a\\', "n\\ud83d", "\\ude00b", '"}')]
    assert pieces == ["", "a", "\n", "😀b", ""]

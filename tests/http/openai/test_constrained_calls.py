"""Forced and strict tool calls over HTTP, from models with random weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.openai_clients import ask_together
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.grammars.constrained_chats import (
    ALLOWED,
    CLOCK,
    NAMED,
    PERSON,
    SCHEMAS,
    TOOLS,
    WITHOUT_REASONING,
    chat,
    formatted,
    tool,
)
from greenroom.tests.support.grammars.grammar_walks import validate
from greenroom.tests.support.servers.shared_servers import Shared


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=tuple(str(tiny_model(kind)) for kind in ("qwen3", "llama")), shutdown_timeout=60.0)


@pytest.mark.parametrize(("choice", "names"), [("required", None), (NAMED, {"greet"}), (ALLOWED, {"greet"})])
@pytest.mark.parametrize("model", ["qwen3", *deep_only("llama")])
async def test_forced_calls_are_made_and_validate(
    settings: Settings, shared: Shared, choice: Any, names: set[str] | None, model: str
) -> None:
    body: dict[str, Any] = {
        **{**WITHOUT_REASONING, "model": model},
        "tools": TOOLS,
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "max_tokens": 1_500,
    }

    def streamed(client: openai.OpenAI) -> Any:
        fields = {name: value for name, value in body.items() if name != "model"}
        with client.chat.completions.stream(model=model, **fields) as events:
            for _ in events:
                pass
            return events.get_final_completion()

    served = shared(settings)
    answers = await ask_together(served, chat(**body), streamed)
    for answer in answers:
        [answered] = answer.choices
        assert answered.finish_reason == "tool_calls", answered
        [call] = answered.message.tool_calls
        assert call.function.name in (names or {"greet", "look_up"})
        validate(PERSON if call.function.name == "greet" else CLOCK, call.function.arguments)
        assert not answered.message.content


@pytest.mark.deep
async def test_a_response_format_beside_tools_leaves_the_choice(settings: Settings, shared: Shared) -> None:
    # A string in the answer may look like a tool call.
    quoted = '<tool_call>\n{"name": "greet", "arguments": {}}\n</tool_call>'
    fields: dict[str, Any] = {"tools": [TOOLS[0]], "response_format": formatted({"enum": [[1], [quoted]]})}
    served = shared(settings)
    answers = await ask_together(served, *[chat(parallel_tool_calls=False, **fields)] * 16)
    for answer in answers:
        [choice] = answer.choices
        if choice.finish_reason == "tool_calls":
            validate(PERSON, choice.message.tool_calls[0].function.arguments)
        else:
            assert choice.finish_reason == "stop"
            assert json.loads(choice.message.content) in ([1], [quoted])


async def test_strict_tools_leave_text_free_and_neighbours_alone(settings: Settings, shared: Shared) -> None:
    """Strict tools change no greedy text, whether the sequence runs alone or beside constrained ones."""
    greedy = {"tools": [tool("greet")], "temperature": 0, "max_tokens": 60}
    strict = {**greedy, "tools": [tool("greet", strict=True)]}
    served = shared(settings)
    [alone] = await ask_together(served, chat(**greedy))
    constrained = [chat(response_format=formatted(schema)) for schema in SCHEMAS[:4]]
    free, watched, *_ = await ask_together(served, chat(**greedy), chat(**strict), *constrained)
    for answer in (free, watched):
        assert answer.choices[0].message.content == alone.choices[0].message.content
        assert answer.choices[0].finish_reason == "length"

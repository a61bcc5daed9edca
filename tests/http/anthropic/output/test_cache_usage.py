"""Prefix cache usage in responses to Anthropic's clients and others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.http.anthropic.message_stream import asks_to_cache
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.anthropic_clients import ask
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

MARK = {"cache_control": {"type": "ephemeral"}}
WORDS = "The sea is wide and deep. " * 12
TEXT = {"type": "text", "text": WORDS}


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=10.0)


async def usage_of(served: Served, block: dict[str, Any], stream: bool, **fields: Any) -> Any:
    body: Any = {
        "model": "qwen3",
        "max_tokens": 3,
        "messages": [{"role": "user", "content": [block]}],
        "extra_body": {"temperature": 0},
        **fields,
    }

    def create(client: Any) -> Any:
        if not stream:
            return client.messages.create(**body).usage
        with client.messages.stream(**body) as events:
            return events.get_final_message().usage

    return await ask(served, create)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_kept_of_a_marked_prompt_is_what_the_next_one_finds(
    settings: Settings, stream: bool
) -> None:
    async with serving(settings) as served:
        first = await usage_of(served, {**TEXT, **MARK}, stream)
        again = await usage_of(served, {**TEXT, **MARK}, stream)
        unmarked = await usage_of(served, {"type": "text", "text": f"A hill. {WORDS}"}, stream)
    assert first.cache_read_input_tokens == 0
    assert first.cache_creation_input_tokens == again.cache_read_input_tokens > 32
    assert again.cache_creation_input_tokens == 0
    assert first.input_tokens == again.input_tokens == 1
    # Without a cache marker, all prompt tokens count as input.
    assert unmarked.cache_creation_input_tokens == 0
    assert unmarked.input_tokens > 32


async def test_without_a_cache_nothing_is_kept(settings: Settings) -> None:
    async with serving(attrs.evolve(settings, prefix_cache_bytes=0)) as served:
        for _ in range(2):
            usage = await usage_of(served, {**TEXT, **MARK}, stream=False)
            assert (usage.cache_creation_input_tokens, usage.cache_read_input_tokens) == (0, 0)


async def test_other_clients_are_told_the_same(settings: Settings) -> None:
    async with serving(settings) as served:
        body = {"model": "qwen3", "max_tokens": 3, "messages": [{"role": "user", "content": WORDS}]}
        chats = [(await fetch(served.server, "POST", "/v1/chat/completions", body)).json() for _ in range(2)]
    first, again = (chat["usage"]["prompt_tokens_details"] for chat in chats)
    assert first["cache_write_tokens"] == again["cached_tokens"] > 32
    assert again["cache_write_tokens"] == first["cached_tokens"] == 0


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ({}, False),
        ({"cache_control": {"type": "ephemeral"}}, True),
        ({"cache_control": None, "tools": [{"name": "a"}]}, False),
        ({"tools": [{"name": "a"}, {"name": "b", **MARK}]}, True),
        ({"system": "text"}, False),
        ({"system": [TEXT, {**TEXT, **MARK}]}, True),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [MARK]}]}]}, True),
        ({"messages": [{"role": "user", "content": "text"}, 5]}, False),
    ],
)
def test_marks_are_found_wherever_they_may_stand(body: Any, asked: bool) -> None:
    assert asks_to_cache(body) == asked

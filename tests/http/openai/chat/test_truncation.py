"""Overlong conversations over a real socket: refused, or shortened at the client's request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import ollama
import openai
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients import ollama_clients
from greenroom.tests.support.clients.openai_clients import ask, body, stream_of
from greenroom.tests.support.servers.http_servers import Served, fetch, serving


@pytest.fixture
def short(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")),), max_context=1024, shutdown_timeout=60.0)


def talk(turns: int) -> list[dict[str, str]]:
    """Return a conversation of `2 * turns + 2` messages."""
    said = [
        {"role": role, "content": f"number {i}: the sea is wide and deep"}
        for i in range(turns)
        for role in ("user", "assistant")
    ]
    return [{"role": "system", "content": "Be brief."}, *said, {"role": "user", "content": "And now?"}]


async def tokens_of(served: Served, messages: list[dict[str, str]], **fields: Any) -> list[int]:
    asked = {"model": "qwen3", "messages": messages, **fields}
    answer = await fetch(served.server, "POST", "/tokenize", asked)
    assert answer.status == 200, answer.body
    return list(answer.json()["tokens"])


async def test_a_chat_is_shortened_where_its_client_asks_for_it(short: Settings) -> None:
    long = talk(100)
    async with serving(short) as served:
        for refused in ({}, {"truncation": "disabled"}, {"truncation": None}):
            with pytest.raises(openai.BadRequestError, match="maximum context length") as overflow:
                await ask(
                    served,
                    lambda client, extra=refused: client.chat.completions.create(  # type: ignore[misc]
                        **body(messages=long), extra_body=extra
                    ),
                )
            assert overflow.value.code == "context_length_exceeded"
        whole = await ask(
            served,
            lambda client: client.chat.completions.create(
                **body(messages=long), extra_body={"truncation": "auto"}
            ),
        )
        dropped = whole.dropped_messages
        chunks = await stream_of(served, messages=long, extra_body={"truncation": "auto"})
        assert [chunk.model_extra.get("dropped_messages") for chunk in chunks] == [
            *[None] * (len(chunks) - 1),
            dropped,
        ]
        # The answer equals that to the remaining messages alone.
        kept = [long[0], *long[1 + dropped :]]
        same = await ask(served, lambda client: client.chat.completions.create(**body(messages=kept)))
        assert same.choices[0].message.content == whole.choices[0].message.content
        assert same.usage is not None
        assert whole.usage is not None
        assert same.usage.prompt_tokens == whole.usage.prompt_tokens
        assert not hasattr(same, "dropped_messages")
        assert await tokens_of(served, long, truncation="auto", max_tokens=12) == await tokens_of(
            served, kept
        )


async def test_truncation_is_one_of_two_words(short: Settings) -> None:
    async with serving(short) as served:
        for path, fields in (
            ("/v1/chat/completions", body(truncation="oldest")),
            ("/v1/chat/completions", body(truncation=True)),
            ("/v1/completions", {"model": "qwen3", "prompt": "a", "truncation": "auto"}),
        ):
            refused = await fetch(served.server, "POST", path, fields)
            assert (refused.status, refused.json()["error"]["param"]) == (400, "truncation")


async def test_ollamas_chats_are_shortened_unless_their_client_forbids_it(short: Settings) -> None:
    options = {"num_predict": 12, "temperature": 0.0}
    async with serving(short) as served:
        whole = await ollama_clients.ask(
            served, lambda client: client.chat("qwen3", talk(100), think=False, options=options)
        )
        asked = {"model": "qwen3", "messages": talk(100), "think": False, "options": options}
        for stream in (True, False):
            answer = await fetch(served.server, "POST", "/api/chat", {**asked, "stream": stream})
            last = answer.body.splitlines()[-1]
            assert attrs.evolve(answer, body=last).json()["dropped_messages"] > 100
            assert attrs.evolve(answer, body=last).json()["prompt_eval_count"] == whole.prompt_eval_count
        refused = await fetch(served.server, "POST", "/api/chat", {**asked, "truncate": False})
        assert refused.status == 400
        assert "maximum context length" in refused.json()["error"]
        for path, fields in (("/api/chat", {"shift": True}), ("/api/generate", {"truncate": True})):
            refused = await fetch(served.server, "POST", path, {**asked, "prompt": "a", **fields})
            assert refused.status == 400
            assert next(iter(fields)) in refused.json()["error"]


async def test_ollamas_client_reads_a_refusal(short: Settings) -> None:
    one = [{"role": "user", "content": "word " * 3000}]
    async with serving(short) as served:
        with pytest.raises(ollama.ResponseError, match="maximum context length") as refused:
            await ollama_clients.ask(served, lambda client: client.chat("qwen3", one))
        assert refused.value.status_code == 400

"""The whole server on a real socket, with the official OpenAI client and real tiny models."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import ollama
import openai
import pytest
import trio
from quart_trio import QuartTrio

from greenroom.schemas.messages.messages import Message, TextInput, TextPart, ToolCall, ToolChoice
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.http.openai.test_chat_routes import conversation
from greenroom.tests.support.actors.actor_systems import generating, state
from greenroom.tests.support.clients import ollama_clients
from greenroom.tests.support.clients.openai_clients import (
    CHAT,
    ask,
    ask_together,
    body,
    stream_of,
    streamed_text,
)
from greenroom.tests.support.engines.vision_adapters import picture, png
from greenroom.tests.support.hostile import sounds
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, serving
from greenroom.tests.support.servers.shared_servers import Shared

LENGTH = 10


def asked(*parts: str | bytes, **fields: Any) -> dict[str, Any]:
    """Return a request with texts, audio files and images."""
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, str):
            content.append({"type": "text", "text": part})
            continue
        data = base64.b64encode(part).decode()
        if part.startswith(b"RIFF"):
            content.append({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}})
        else:
            content.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
    messages = [{"role": "user", "content": content}]
    return {"model": "default", "messages": messages, "temperature": 0, "max_tokens": LENGTH, **fields}


def by_library(folder: Path, text: str, heard: np.ndarray[Any, Any]) -> str:
    """Return the greedy answer of `mlx_vlm.stream_generate`."""
    from mlx_vlm.generate import stream_generate
    from mlx_vlm.utils import load

    model, processor = load(str(folder))
    generate: Any = stream_generate
    images = [picture(96, 64)]
    answer = generate(model, processor, text, image=images, audio=[heard], max_tokens=LENGTH, temperature=0.0)
    tokens = [response.token for response in answer][:LENGTH]
    return str(processor.tokenizer.decode(tokens)).lstrip()


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore:At least one mel filter")
async def test_an_answer_about_a_sound_and_an_image_is_the_librarys_own(
    tiny_vision_model: TinyVisionModel,
) -> None:
    folder = tiny_vision_model("gemma4")
    tone = sounds.tone(0.5)
    text = "<|im_start|>user\nHear <|audio|> and see <|image|>.<|im_end|>\n<|im_start|>assistant\n"
    heard = np.frombuffer(tone[44:], np.int16).astype(np.float32) / 32768
    expected = by_library(folder, text, heard)
    async with serving(Settings(models=(str(folder),), shutdown_timeout=60.0)) as served:
        body = asked("Hear ", tone, " and see ", png(96, 64), ".")
        answer = await ask(served, lambda client: client.chat.completions.create(**body))
        assert (answer.choices[0].message.content or "").lstrip() == expected
        assert answer.usage.prompt_tokens_details.image_tokens == 60
        other = asked("Hear ", sounds.tone(0.6), " and see ", png(96, 64), ".")
        assert (
            await ask(served, lambda client: client.chat.completions.create(**other))
        ).usage.prompt_tokens > (answer.usage.prompt_tokens)
        long = asked(sounds.tone(4.5))
        with pytest.raises(openai.BadRequestError, match="4 seconds"):
            await ask(served, lambda client: client.chat.completions.create(**long))


async def test_a_model_that_does_not_hear_says_so(tiny_vision_model: TinyVisionModel) -> None:
    async with serving(Settings(models=(str(tiny_vision_model("qwen2_vl")),))) as served:
        with pytest.raises(openai.BadRequestError, match="does not hear") as refused:
            await ask(served, lambda client: client.chat.completions.create(**asked("Hear ", sounds.tone())))
        assert (refused.value.param or "").startswith("messages[0].content[1]")
        body = asked("Hello", modalities=["text", "audio"], audio={"voice": "alloy", "format": "wav"})
        with pytest.raises(openai.BadRequestError, match="modalities"):
            await ask(served, lambda client: client.chat.completions.create(**body))


async def test_a_streamed_answer_is_the_whole_answer(settings: Settings) -> None:
    async with serving(settings) as served:
        whole = await ask(served, lambda client: client.chat.completions.create(**body()))
        assert whole.model == "qwen3"
        assert whole.usage
        assert whole.usage.completion_tokens == 12
        assert whole.choices[0].finish_reason == "length"
        assert whole._request_id
        assert whole._request_id.startswith("req_")
        chunks = await stream_of(served, stream_options={"include_usage": True})
        assert streamed_text(chunks) == whole.choices[0].message.content
        assert chunks[0].choices[0].delta.role == "assistant"
        assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:-1])
        assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1
        assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + [
            "length"
        ]
        assert chunks[-1].choices == []
        usage = chunks[-1].usage
        assert usage is not None
        assert usage.completion_tokens_details == whole.usage.completion_tokens_details
        assert usage.prompt_tokens == whole.usage.prompt_tokens
        assert usage.total_tokens == whole.usage.total_tokens
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens in range(usage.prompt_tokens)
        assert all(chunk.usage is None for chunk in await stream_of(served))


async def test_the_asynchronous_client_streams_too(settings: Settings, shared: Shared) -> None:
    served = shared(settings)

    async def several() -> list[str]:
        async with openai.AsyncOpenAI(base_url=served.base_url, api_key="any") as client:

            async def one() -> str:
                chunks = await client.chat.completions.create(**body(stream=True))
                return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

            return list(await asyncio.gather(*(one() for _ in range(6))))

    with trio.fail_after(300):
        texts = await trio.to_thread.run_sync(asyncio.run, several())
    assert len(set(texts)) == 1
    assert texts[0] == streamed_text(await stream_of(served))


async def test_stop_strings_end_an_answer_without_showing(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    whole = streamed_text(await stream_of(served, max_tokens=None, max_completion_tokens=24))
    stop = whole[len(whole) // 2 :][:3]
    chunks = await stream_of(served, max_tokens=24, stop=[stop])
    assert streamed_text(chunks) == whole[: whole.index(stop)]
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_content_and_roles_come_in_several_forms(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    plain = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one two"}]
    parts = [
        {"role": "developer", "content": [{"type": "text", "text": "be brief"}]},
        {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
    ]
    texts = [streamed_text(await stream_of(served, messages=messages)) for messages in (plain, parts)]
    assert texts[0] == texts[1]
    assert texts[0] != streamed_text(await stream_of(served))


async def test_default_means_the_first_model(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    answer = await ask(served, lambda client: client.chat.completions.create(**body(model="default")))
    assert answer.model == "qwen3"
    assert answer.choices[0].message.content == streamed_text(await stream_of(served))


@pytest.mark.parametrize("stream", [True, False])
async def test_hanging_up_stops_the_model(settings: Settings, stream: bool) -> None:
    async with serving(settings) as served:
        async with connected(served.server) as client:
            await client.request("POST", CHAT, json.dumps(body(stream=stream, max_tokens=None)).encode())
            if stream:
                await client.read_until(b'"content":"')
            await generating(served.system.pool, "qwen3", 1)
        await generating(served.system.pool, "qwen3", 0)
        assert await state(served.system.pool, "qwen3") is ModelState.READY


async def test_an_answer_may_take_longer_than_quarts_time_limit(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = {**QuartTrio.default_config, "RESPONSE_TIMEOUT": 0.01}
    monkeypatch.setattr(QuartTrio, "default_config", limited)
    async with serving(settings) as served:
        chunks = await stream_of(served, max_tokens=200)
        assert chunks[-1].choices[0].finish_reason == "length"


PATTERN = r'^SELECT [a-z]{1,3}\n"[0-9]+"$'
QUERY = {
    "type": "custom",
    "custom": {
        "name": "query",
        "description": "Asks the database.",
        "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": PATTERN}},
    },
}
NOTE = {"type": "custom", "custom": {"name": "note", "format": {"type": "text"}}}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
NAMED = {"type": "custom", "custom": {"name": "query"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
USER: Any = {"role": "user", "content": "What is there?"}
PAST: list[Any] = [
    USER,
    {
        "role": "assistant",
        "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "note", "input": 'say "hö"'}}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "Noted."},
    USER,
]


def test_custom_tools_and_their_calls_are_neutral() -> None:
    chat = conversation(*PAST, tools=[QUERY, NOTE, ADD], tool_choice=NAMED)
    query, note, add = chat.tools
    assert query.input == TextInput("regex", PATTERN)
    assert query.strict
    assert "Asks the database." in query.description
    assert PATTERN in query.description
    assert note.input == TextInput()
    assert not note.strict
    assert add.input is None
    assert chat.tool_choice == ToolChoice("named", "query")
    assert chat.messages[1] == Message(
        "assistant", tool_calls=(ToolCall("call_1", "note", '{"input": "say \\"hö\\""}'),)
    )
    assert chat.messages[2] == Message("tool", (TextPart("Noted."),), tool_call_id="call_1")


def custom(**fields: Any) -> Any:
    return {"type": "custom", "custom": {"name": "run", **fields}}


def grammar(**fields: Any) -> Any:
    return custom(format={"type": "grammar", "grammar": {"syntax": "lark", "definition": "x", **fields}})


FORMAT = "tools[0].custom.format"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "custom"}]}, "tools[0].custom"),
        ({"tools": [custom(name=None)]}, "tools[0].custom.name"),
        ({"tools": [custom(name="")]}, "tools[0].custom.name"),
        ({"tools": [custom(description=5)]}, "tools[0].custom.description"),
        ({"tools": [custom(format="text")]}, FORMAT),
        ({"tools": [custom(format={"type": "json"})]}, f"{FORMAT}.type"),
        ({"tools": [custom(format={"type": "grammar", "grammar": 5})]}, f"{FORMAT}.grammar"),
        ({"tools": [grammar(syntax="gbnf")]}, f"{FORMAT}.grammar.syntax"),
        ({"tools": [grammar(definition=None)]}, f"{FORMAT}.grammar.definition"),
        ({"tools": [grammar(definition=5)]}, f"{FORMAT}.grammar.definition"),
        ({"tools": [grammar(definition="\ud800")]}, f"{FORMAT}.grammar.definition"),
        ({"tools": [ADD, custom(name="add")]}, "tools[1].custom.name"),
        ({"tools": [custom(name="add"), ADD]}, "tools[1].function.name"),
        ({"tools": [NOTE], "tool_choice": {"type": "custom"}}, "tool_choice.custom.name"),
    ],
)
def test_what_makes_no_sense_is_named(fields: Any, param: str) -> None:
    with pytest.raises(ProblemError) as refused:
        conversation(USER, **fields)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, param)


@pytest.mark.parametrize(
    ("model", "choice"),
    [
        ("qwen3", NAMED),
        pytest.param("llama", ALLOWED, marks=pytest.mark.deep),
        pytest.param("llama", "required", marks=pytest.mark.deep),
    ],
)
async def test_a_forced_call_comes_as_text(
    settings: Settings, shared: Shared, choice: Any, model: str
) -> None:
    fields: dict[str, Any] = {
        "messages": PAST,
        "tools": [QUERY] if choice == "required" else [QUERY, NOTE, ADD],
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "max_tokens": 500,
        "reasoning_effort": "none",
    }

    def streamed(client: openai.OpenAI) -> Any:
        with client.chat.completions.stream(model=model, **fields) as events:
            for _ in events:
                pass
            # The SDK's final step does not support streamed custom calls, but its snapshot is complete.
            return events.current_completion_snapshot

    def whole(client: openai.OpenAI) -> Any:
        return client.chat.completions.create(model=model, **fields)

    served = shared(settings)
    answers = await ask_together(served, whole, streamed)
    for answer in answers:
        [answered] = answer.choices
        assert answered.finish_reason == "tool_calls", answered
        [call] = answered.message.tool_calls
        custom = call.custom if isinstance(call.custom, dict) else call.custom.to_dict()
        assert (call.type, custom["name"]) == ("custom", "query")
        assert re.fullmatch(PATTERN, custom["input"]), custom


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


@pytest.mark.deep
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

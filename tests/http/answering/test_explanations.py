"""Tests of explanations: what clients are told of the prefix cache, and of nobody else's prompts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import attrs
import pytest
import structlog
import structlog.testing

from greenroom.actors.core.ref import ask_actor
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.clients import anthropic_clients
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

SYSTEM = "You are an agent that edits files. Think before you act, and say what you did. " * 12
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("read_file", "write_file")
]


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=10.0)


async def chat(
    served: Served, messages: list[dict[str, Any]], key: str = "", **fields: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the explanation of a chat, and its whole response."""
    body = {
        "model": "qwen3",
        "messages": messages,
        "max_tokens": 4,
        "temperature": 0,
        "stream_options": {"include_explain": True},
        **fields,
    }
    headers = {"authorization": f"Bearer {key}"} if key else {}
    response = await fetch(served.server, "POST", "/v1/chat/completions", body, **headers)
    answer = response.json()
    assert response.status == 200, answer
    return answer["usage"].get("greenroom"), answer


def turns(count: int, system: str = SYSTEM) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
    for turn in range(count):
        messages.append({"role": "user", "content": f"Change file number {turn} now, please. " * 4})
        messages.append({"role": "assistant", "content": f"File number {turn} is changed. " * 4})
    return messages[:-1]


async def test_a_session_is_told_which_message_cost_it_its_prefix(settings: Settings) -> None:
    async with serving(settings) as served:
        told = [await chat(served, turns(turn), tools=TOOLS) for turn in range(1, 5)]
        changed = SYSTEM.replace("Think", "Plan", 1)
        explained, answer = await chat(served, turns(5, changed), tools=TOOLS)
    assert [each["prefix"]["reason"] for each, _ in told] == ["first", *["continued"] * 3]
    assert all(each["prefix"]["repeated_tokens"] <= 1 for each, _ in told)  # the last one is never kept
    prefix, usage = explained["prefix"], answer["usage"]
    assert (prefix["reason"], prefix["part"], prefix["index"], prefix["role"]) == (
        "changed",
        "message",
        0,
        "system",
    )
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    before = told[-1][1]["usage"]["prompt_tokens"]
    assert explained["cached_tokens"] == {"memory": cached, "disk": 0, "images": 0}
    # All of the earlier prompt but the changed word, and the opening of its answer, was computed again.
    assert before - cached - 30 < prefix["repeated_tokens"] < before - cached
    computed = usage["prompt_tokens"] - cached
    share = answer["timings"]["prompt_ms"] / 1e3 * prefix["repeated_tokens"] / computed
    assert prefix["repeated_seconds"] == pytest.approx(share, abs=2e-4)
    assert sum(explained["waited_seconds"].values()) == pytest.approx(
        answer["timings"]["queued_ms"] / 1e3, abs=1e-3
    )


async def cached_bytes(served: Served) -> int:
    """Return the bytes of the prefix cache once nothing runs."""
    found: list[int] = []

    async def idle() -> bool:
        pool = await ask_actor(served.system.refs.pool, DescribePool(), PoolStatus)
        snapshots = [model.snapshot for model in pool.models if model.snapshot is not None]
        found[:] = [each.memory.cached for each in snapshots if not each.running and each.memory.cached]
        return bool(found)

    await eventually(idle)
    return found[0]


@pytest.mark.deep
async def test_titles_between_two_turns_leave_the_session_in_a_cache_of_little_more(
    settings: Settings,
) -> None:
    cached, budget = {}, settings.prefix_cache_bytes
    for titles in (0, 16):
        async with serving(attrs.evolve(settings, prefix_cache_bytes=budget)) as served:
            _, first = await chat(served, turns(1), tools=TOOLS)
            budget = await cached_bytes(served) * 12 // 10
            tokens = 0
            for number in range(titles):
                asked = (
                    f"Give the conversation number {number} a title. " + f"It is about file {number}. " * 4
                )
                _, answer = await chat(served, [{"role": "user", "content": asked}])
                tokens += answer["usage"]["prompt_tokens"]
            _, second = await chat(served, turns(2), tools=TOOLS)
            cached[titles] = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    before = first["usage"]["prompt_tokens"]
    assert tokens > before / 2, "they would fill the rest of the cache more than once"
    assert cached[16] == cached[0] > 0.9 * before


async def test_another_clients_prompts_are_not_compared(settings: Settings) -> None:
    async with serving(settings) as served:
        await chat(served, turns(2), key="one")
        stranger, answer = await chat(served, turns(3, SYSTEM.replace("Think", "Plan", 1)), key="two")
        own, _ = await chat(served, turns(3, SYSTEM.replace("Think", "Look", 1)), key="one")
    assert stranger["prefix"] == {
        "reason": "first",
        "part": None,
        "index": None,
        "role": None,
        "shared_tokens": 0,
        "repeated_tokens": 0,
        "repeated_seconds": 0.0,
    }
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert own["prefix"]["part"] == "message"


async def test_changed_tools_and_later_messages_are_named(settings: Settings) -> None:
    async with serving(settings) as served:
        await chat(served, turns(3), tools=TOOLS)
        renamed = [TOOLS[0], {"type": "function", "function": {"name": "edit_file", "parameters": {}}}]
        tool, _ = await chat(served, turns(3), tools=renamed)
        edited = turns(3)
        edited[3] = {"role": "user", "content": "Leave that file as it was."}
        message, _ = await chat(served, edited, tools=renamed)
        again, _ = await chat(served, edited, tools=renamed)
    assert (tool["prefix"]["part"], tool["prefix"]["index"]) == ("tool", 1)
    assert (message["prefix"]["part"], message["prefix"]["index"], message["prefix"]["role"]) == (
        "message",
        3,
        "user",
    )
    assert again["prefix"]["reason"] == "whole"


async def test_the_log_tells_of_every_request_and_of_no_text(settings: Settings) -> None:
    with structlog.testing.capture_logs() as lines:
        async with serving(settings) as served:
            await chat(served, turns(2))
            asked, _ = await chat(served, turns(2, SYSTEM.replace("Think", "Plan", 1)), stream_options=None)
    assert asked is None
    [line] = [line for line in lines if line.get("prefix_end") == "changed"]
    assert (line["event"], line["prefix_part"], line["prefix_role"]) == (
        "request finished",
        "message[0]",
        "system",
    )
    assert line["repeated_tokens"] > 0
    assert "edits files" not in str(lines)


async def test_a_stream_ends_with_the_explanation(settings: Settings) -> None:
    async with serving(settings) as served:
        body = {
            "model": "qwen3",
            "messages": turns(1),
            "max_tokens": 3,
            "stream": True,
            "stream_options": {"include_explain": True},
        }
        response = await fetch(served.server, "POST", "/v1/chat/completions", body)
    lines = [line for line in response.body.decode().split("\n\n") if '"usage":{' in line]
    usage = json.loads(lines[-1].removeprefix("data: "))["usage"]
    assert usage["greenroom"]["prefix"]["reason"] == "first"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}),
        *(
            ("/v1/responses", {"input": "Hello", "max_output_tokens": 16, "temperature": 0, "store": store})
            for store in (False, True)
        ),
        (
            "/api/chat",
            {
                "messages": [{"role": "user", "content": "Hello"}],
                "stream": False,
                "options": {"num_predict": 3},
            },
        ),
        (
            "/v1/completions",
            {"prompt": ["Hello there, my friends", "Good night to all of you"], "max_tokens": 3},
        ),
    ],
)
async def test_every_protocol_explains_on_request(
    settings: Settings, path: str, body: dict[str, Any]
) -> None:
    async with serving(settings) as served:
        asked = {"model": "qwen3", **body, "include_explain": True}
        answer = (await fetch(served.server, "POST", path, asked)).json()
        silent = (await fetch(served.server, "POST", path, {"model": "qwen3", **body})).json()
        refused = await fetch(served.server, "POST", path, {**asked, "include_explain": "yes"})
    explained = answer.get("usage", answer)["greenroom"]
    reasons = [
        each["prefix"]["reason"] for each in (explained if isinstance(explained, list) else [explained])
    ]
    assert reasons[0] in ("first", "changed")
    assert len(reasons) == (2 if "prompt" in body else 1)
    if path == "/v1/responses":  # which has no timings
        assert explained["seconds"].keys() == {"queued", "prefill", "decode"}
        assert explained["seconds"]["decode"] > 0
    assert "greenroom" not in silent.get("usage", silent)
    assert refused.status == 400
    assert "include_explain" in json.dumps(refused.json())


async def test_anthropics_client_reads_explanations_whole_and_streamed(settings: Settings) -> None:
    asked: dict[str, Any] = {
        "model": "qwen3",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 3,
        "extra_body": {"include_explain": True},
    }

    def stream(client: anthropic.Anthropic) -> Any:
        with client.messages.stream(**asked) as events:
            return events.get_final_message().usage

    async with serving(settings) as served:
        whole = (await anthropic_clients.ask(served, lambda client: client.messages.create(**asked))).usage
        streamed = await anthropic_clients.ask(served, stream)
        silent = await anthropic_clients.ask(
            served, lambda client: client.messages.create(**{**asked, "extra_body": None})
        )
    assert whole.to_dict()["greenroom"]["prefix"]["reason"] == "first"
    assert streamed.output_tokens == 3
    assert "greenroom" not in silent.usage.to_dict()
    events = await _deltas(settings, {**asked, **asked["extra_body"], "stream": True})
    assert events[-1]["usage"]["greenroom"]["prefix"]["reason"] == "first"


async def _deltas(settings: Settings, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events `message_delta` of a stream of Anthropic's."""
    async with serving(settings) as served:
        del body["extra_body"]
        response = await fetch(served.server, "POST", "/v1/messages", body)
    lines = [line[6:] for line in response.body.decode().splitlines() if line.startswith("data: ")]
    return [event for event in map(json.loads, lines) if event["type"] == "message_delta"]


async def test_explanations_can_be_switched_off(tiny_model: Callable[..., Path]) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), explain=False, shutdown_timeout=10.0)
    async with serving(settings) as served:
        explained, _ = await chat(served, turns(1))
    assert explained is None

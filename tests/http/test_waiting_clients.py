"""Streams of requests that wait for memory, read by official clients, which learn why and do not break."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import attrs
import httpx2
import ollama
import openai
import pytest
import trio
from openai.types.responses import Response

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.load_size import load_size
from greenroom.schemas.events.events import TextDelta
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.actors.actor_systems import generate, until
from greenroom.tests.support.servers.http_servers import serving

USER: Any = [{"role": "user", "content": "Hello"}]
STATUS: Any = {"stream_options": {"include_status": True}}
SHORT: Any = {"model": "llama", "messages": USER, "max_tokens": 5}


class Watched:
    """The statuses that clients got, and an event once each of them was told which model leaves."""

    def __init__(self, clients: int) -> None:
        self.statuses: dict[str, list[Any]] = {}
        self.all_told = threading.Event()
        self._clients = clients

    def tell(self, client: str, members: dict[str, Any] | None) -> None:
        status = (members or {}).get("queue_status")
        if status is not None:
            self.statuses.setdefault(client, []).append(status)
            told = [any(each["unloading"] for each in seen) for seen in self.statuses.values()]
            if told.count(True) == self._clients:
                self.all_told.set()


def read_chat(address: str, watched: Watched) -> None:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        text = ""
        for chunk in client.chat.completions.create(**SHORT, **STATUS, stream=True):
            watched.tell("chat", chunk.model_extra)
            text += chunk.choices[0].delta.content or ""
    assert text


def read_completion(address: str, watched: Watched) -> None:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        text = ""
        for chunk in client.completions.create(model="llama", prompt="Hello", stream=True, **STATUS):
            watched.tell("completion", chunk.model_extra)
            text += chunk.choices[0].text
    assert text


def read_response(address: str, watched: Watched, name: str, **fields: Any) -> None:
    waits = "response.queued" if fields.get("background") else "response.in_progress"
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        numbers, kinds, text = [], [], ""
        asked: Any = {"model": "llama", "input": "Hello", "max_output_tokens": 5, **fields}
        with client.responses.stream(**asked) as stream:
            for event in stream:
                numbers.append(event.sequence_number)
                kinds.append(event.type)
                if isinstance(response := getattr(event, "response", None), Response):
                    assert response.temperature == 0.25
                assert event.type == waits or "queue_status" not in (event.model_extra or {})
                watched.tell(name, event.model_extra)
                if event.type == "response.output_text.delta":
                    text += event.delta
    assert numbers == list(range(len(numbers)))
    assert (kinds[0], kinds[-1]) == ("response.created", "response.incomplete")
    assert text


def read_message(address: str, _: Watched) -> None:
    with (
        anthropic.Anthropic(base_url=address, api_key="any", max_retries=0) as client,
        client.messages.stream(**SHORT) as stream,
    ):
        message = stream.get_final_message()
    assert message.stop_reason == "max_tokens"
    assert message.content


def read_ollama(address: str, _: Watched) -> None:
    with ollama.Client(host=address) as client:
        pieces = list(client.chat("llama", USER, stream=True, options={"num_predict": 5}))
    assert "".join(piece.message.content or "" for piece in pieces)
    assert pieces[-1].done


def read_pings(address: str, watched: Watched) -> None:
    """Read the events that Anthropic's client hides."""
    body = {**SHORT, "stream": True}
    with httpx2.stream("POST", f"{address}/v1/messages", json=body, timeout=300) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                assert event["type"] == "ping" or "queue_status" not in event
                watched.tell("ping", event)


def read_lines(address: str, watched: Watched) -> None:
    """Read the members that Ollama's client ignores."""
    body = {"model": "llama", "messages": USER, "options": {"num_predict": 5}}
    with httpx2.stream("POST", f"{address}/api/chat", json=body, timeout=300) as answer:
        for line in answer.iter_lines():
            watched.tell("line", json.loads(line))


READERS: list[Callable[[str, Watched], None]] = [
    read_chat,
    read_completion,
    partial(read_response, name="response", store=False),
    partial(read_response, name="stored"),
    partial(read_response, name="background", background=True),
    read_pings,
    read_lines,
    read_message,
    read_ollama,
]
"""All clients; the last two hide the status."""


@pytest.mark.deep
async def test_official_clients_learn_which_model_leaves_for_theirs_and_read_on(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folders = [tiny_model("qwen3"), tiny_model("llama")]
    held, needed = (load_size(folder, detect(folder), Settings()).total for folder in folders)
    room = max(held, needed) * 3 // 2
    models = tuple(map(str, folders))
    settings = Settings(models=models, memory_bytes=room, db=str(tmp_path / "db"), shutdown_timeout=60.0)
    settings = attrs.evolve(settings, model_settings=(("llama", ModelSettings(temperature=0.25)),))
    watched = Watched(clients=len(READERS) - 2)
    with trio.fail_after(300):
        async with serving(settings, status_timeout=0.1) as served, trio.open_nursery() as nursery:
            with generate(served.system.pool, "qwen3", "holder", max_tokens=20_000) as holder:
                await until(holder, TextDelta)
                for read in READERS:
                    call = partial(read, served.server.address, watched)
                    nursery.start_soon(partial(trio.to_thread.run_sync, call, abandon_on_cancel=True))
                await trio.to_thread.run_sync(watched.all_told.wait, abandon_on_cancel=True)
    for seen in watched.statuses.values():
        told = next(each for each in seen if each["unloading"])
        assert (told["status"], told["model"], told["unloading"]) == ("waiting_for_model", "llama", ["qwen3"])
        assert (told["required_bytes"], told["available_bytes"]) == (needed, room - held)

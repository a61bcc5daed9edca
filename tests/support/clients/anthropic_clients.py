"""Anthropic's official client against a server of ours, and requests as it and its agents send them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import anthropic
import trio
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from greenroom.http.anthropic.requests.messages_request import parse_messages_request
from greenroom.schemas.anthropic.converter import ANTHROPIC
from greenroom.schemas.anthropic.messages import MessagesRequest
from greenroom.schemas.requests import ChatInput, InferenceRequest
from greenroom.schemas.wire import structure
from greenroom.tests.support.servers.http_servers import Served

T = TypeVar("T")
EVENT: Any = TypeAdapter(RawMessageStreamEvent)

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
USER = {"role": "user", "content": "Tell me about the sea"}


async def ask(served: Served, call: Callable[[Any], T], retries: int = 0) -> T:
    """Let the synchronous client do something on a thread of its own."""

    def on_thread() -> T:
        with anthropic.Anthropic(
            base_url=served.server.address, api_key="any", max_retries=retries
        ) as client:
            return call(client)

    with trio.fail_after(300):
        return await trio.to_thread.run_sync(on_thread)


def body(**fields: Any) -> dict[str, Any]:
    """Return a greedy request for a few tokens."""
    return {"model": "qwen3", "messages": [USER], "temperature": 0, "max_tokens": 12, **fields}


def arguments(**fields: Any) -> dict[str, Any]:
    """Return what the client is given to send that; its latest version knows no temperature."""
    request = body(**fields)
    return {"extra_body": {"temperature": request.pop("temperature")}, **request}


def parse(request: dict[str, Any], betas: str = "") -> InferenceRequest:
    """Return the neutral request for a body."""
    wire = structure(request, MessagesRequest, ANTHROPIC)
    return parse_messages_request(wire, request, "req_1", "", betas)


def conversation(*messages: Any, **fields: Any) -> ChatInput:
    """Return the neutral conversation for the messages of a request."""
    asked = parse({"model": "m", "max_tokens": 2_000, "messages": list(messages), **fields}).input
    assert isinstance(asked, ChatInput)
    return asked


def events_of(sent: bytes) -> list[Any]:
    """Return the events, each of which is called as its type says."""
    events = []
    for event in sent.decode().split("\n\n")[:-1]:
        name, data = event.split("\n")
        decoded = json.loads(data.removeprefix("data: "))
        assert name == f"event: {decoded['type']}"
        events.append(decoded)
    return events


def accumulated(events: list[Any]) -> Message:
    """Return what the client's own helper makes of a stream."""
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in events:
        if event["type"] == "ping":  # the client passes over them
            continue
        typed = EVENT.validate_python(event)
        snapshot = accumulate_event(event=typed, current_snapshot=snapshot, json_bufs=buffers)
    message: Message = Message.model_validate(snapshot.to_dict())
    return message

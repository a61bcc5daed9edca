"""Anthropic's official client against our server, and requests as it and its agents send them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import anthropic
import trio
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from greenroom.http.anthropic.messages_request import parse_messages_request
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.wire.anthropic import ANTHROPIC, MessagesRequest
from greenroom.schemas.wire.wire import structure
from greenroom.tests.support.servers.http_servers import Served

T = TypeVar("T")
EVENT: Any = TypeAdapter(RawMessageStreamEvent)

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
USER = {"role": "user", "content": "Tell me about the sea"}


async def ask(served: Served, call: Callable[[Any], T], retries: int = 0) -> T:
    """Call the synchronous client in a thread."""

    def on_thread() -> T:
        with anthropic.Anthropic(
            base_url=served.server.address, api_key="any", max_retries=retries
        ) as client:
            return call(client)

    with trio.fail_after(300):
        return await trio.to_thread.run_sync(on_thread)


def body(**fields: Any) -> dict[str, Any]:
    """Return the JSON of a greedy request for a few tokens."""
    return {"model": "qwen3", "messages": [USER], "temperature": 0, "max_tokens": 12, **fields}


def arguments(**fields: Any) -> dict[str, Any]:
    """Return arguments for the client's methods; its latest version has no `temperature`."""
    request = body(**fields)
    return {"extra_body": {"temperature": request.pop("temperature")}, **request}


def parse(request: dict[str, Any], betas: str = "") -> InferenceRequest:
    """Return a body's protocol-independent request."""
    wire = structure(request, MessagesRequest, ANTHROPIC)
    return parse_messages_request(wire, request, "req_1", "", betas)


def conversation(*messages: Any, **fields: Any) -> ChatInput:
    """Return the protocol-independent conversation of a request's messages."""
    asked = parse({"model": "m", "max_tokens": 2_000, "messages": list(messages), **fields}).input
    assert isinstance(asked, ChatInput)
    return asked


def events_of(sent: bytes) -> list[Any]:
    """Return the stream's events, after checking that each event's name is its type."""
    events = []
    for event in sent.decode().split("\n\n")[:-1]:
        name, data = event.split("\n")
        decoded = json.loads(data.removeprefix("data: "))
        assert name == f"event: {decoded['type']}"
        events.append(decoded)
    return events


def accumulated(events: list[Any]) -> Message:
    """Return the message that the client's own helper accumulates from a stream."""
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in events:
        if event["type"] == "ping":  # the client ignores pings
            continue
        typed = EVENT.validate_python(event)
        snapshot = accumulate_event(event=typed, current_snapshot=snapshot, json_bufs=buffers)
    message: Message = Message.model_validate(snapshot.to_dict())
    return message

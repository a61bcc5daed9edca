"""Stand-ins of servers elsewhere, which replay documented answers, with faults at any place."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import attrs
import trio

EVENTS = "text/event-stream"


@attrs.define(eq=False)
class Asked:
    """A request that a stand-in has received.

    Args:
        left: Event that is set when its client has closed the connection.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""
    left: trio.Event = attrs.field(factory=trio.Event)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@attrs.define(eq=False)
class Script:
    """An answer in pieces. None is a pause without an end.

    Args:
        raw: True if the pieces are all that is sent, without a head.
    """

    pieces: tuple[bytes | None, ...] = ()
    status: int = 200
    kind: str = EVENTS
    headers: dict[str, str] = attrs.field(factory=dict)
    raw: bool = False


Answer = Callable[[Asked], Script]


@attrs.define(eq=False)
class StandIn:
    """A server that answers with scripts.

    Args:
        answer: Function that returns the answer to a request; it may be replaced at any time.
    """

    answer: Answer
    url: str = ""
    asked: list[Asked] = attrs.field(factory=list)
    heard: trio.Event = attrs.field(factory=trio.Event)

    @property
    def posts(self) -> list[Asked]:
        return [each for each in self.asked if each.method == "POST"]

    async def wait_for_posts(self, count: int) -> None:
        while len(self.posts) < count:
            self.heard = trio.Event()
            await self.heard.wait()


@asynccontextmanager
async def standing_in(answer: Answer) -> AsyncIterator[StandIn]:
    """Serve a stand-in on a free port of this machine."""
    stand_in = StandIn(answer)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    stand_in.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError):
                await _serve(stand_in, stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        yield stand_in
        nursery.cancel_scope.cancel("the test is over")


async def _serve(stand_in: StandIn, stream: trio.SocketStream) -> None:
    head = await _read_head(stream)
    if head is None:
        return
    asked, rest = head
    length = int(asked.headers.get("content-length", 0))
    while len(rest) < length:
        if not (more := await stream.receive_some(65_536)):
            return
        rest += more
    asked.body = rest
    stand_in.asked.append(asked)
    stand_in.heard.set()
    script = stand_in.answer(asked)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, stream, asked, nursery)
        with suppress(trio.BrokenResourceError):
            await _send(stream, script)
        nursery.cancel_scope.cancel("sent")


async def _watch(stream: trio.SocketStream, asked: Asked, nursery: trio.Nursery) -> None:
    try:
        while await stream.receive_some(1):
            pass
    except trio.BrokenResourceError:
        pass
    asked.left.set()
    nursery.cancel_scope.cancel("the client has left")


async def _send(stream: trio.SocketStream, script: Script) -> None:
    if not script.raw:
        headers = {"content-type": script.kind, "connection": "close", **script.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        await stream.send_all(f"HTTP/1.1 {script.status} X\r\n{lines}\r\n".encode("latin-1"))
    for piece in script.pieces:
        if piece is None:
            await trio.sleep_forever()
        else:
            await stream.send_all(piece)


async def _read_head(stream: trio.SocketStream) -> tuple[Asked, bytes] | None:
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = await stream.receive_some(65_536)
        if not chunk:
            return None
        data += chunk
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Asked(method, path, headers), rest


def event(**data: Any) -> bytes:
    """Return one server-sent event, under its type where it has one."""
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def chunk(delta: dict[str, Any] | None = None, reason: str | None = None, **members: Any) -> bytes:
    """Return a chunk of OpenAI's chats."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason, "logprobs": None}
    named = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return event(**{**named, "choices": [choice], **members})


USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 3,
    "total_tokens": 14,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 1},
}
CHAT = (
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "hm"}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    chunk(reason="stop"),
    chunk(choices=[], usage=USAGE),
    b"data: [DONE]\n\n",
)
"""A chat's stream as OpenAI's API reference describes it, with the reasoning of other servers."""

MESSAGE = (
    event(
        type="message_start",
        message={
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": "m",
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 7, "cache_read_input_tokens": 4, "output_tokens": 1},
        },
    ),
    event(
        type="content_block_start",
        index=0,
        content_block={"type": "thinking", "thinking": "", "signature": ""},
    ),
    event(type="ping"),
    event(type="content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "hm"}),
    event(type="content_block_delta", index=0, delta={"type": "signature_delta", "signature": "c2ln"}),
    event(type="content_block_stop", index=0),
    event(type="content_block_start", index=1, content_block={"type": "text", "text": ""}),
    event(type="content_block_delta", index=1, delta={"type": "text_delta", "text": "Hel"}),
    event(type="content_block_delta", index=1, delta={"type": "text_delta", "text": "lo"}),
    event(type="content_block_stop", index=1),
    event(
        type="message_delta",
        delta={"stop_reason": "end_turn", "stop_sequence": None},
        usage={"output_tokens": 3},
    ),
    event(type="message_stop"),
)
"""A message's stream as Anthropic's documentation describes it."""

_RESPONSE: dict[str, Any] = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
RESPONSE = (
    event(type="response.created", sequence_number=0, response=_RESPONSE),
    event(type="response.reasoning_summary_text.delta", sequence_number=1, item_id="rs_1", delta="hm"),
    event(
        type="response.output_item.added",
        sequence_number=2,
        output_index=1,
        item={"type": "message", "id": "m1"},
    ),
    event(type="response.output_text.delta", sequence_number=3, item_id="m1", delta="Hel", logprobs=[]),
    event(type="response.output_text.delta", sequence_number=4, item_id="m1", delta="lo", logprobs=[]),
    event(
        type="response.completed",
        sequence_number=5,
        response={
            **_RESPONSE,
            "status": "completed",
            "usage": {
                "input_tokens": 11,
                "input_tokens_details": {"cached_tokens": 4},
                "output_tokens": 3,
                "output_tokens_details": {"reasoning_tokens": 1},
            },
        },
    ),
)
"""A response's stream as OpenAI's API reference describes it."""

STREAMS = {"openai": CHAT, "anthropic": MESSAGE, "responses": RESPONSE}
BEGUN = {"openai": 3, "anthropic": 8, "responses": 4}
"""Number of pieces of each stream after which the answer's text has begun."""


def models(*names: str) -> Script:
    """Return the list of models that have these names."""
    data = [{"id": name, "object": "model", "created": 1, "owned_by": "far"} for name in names]
    return Script((json.dumps({"object": "list", "data": data}).encode(),), kind="application/json")


def answering(script: Script, *names: str) -> Answer:
    """Return a function that lists models, and answers every other request with a script."""
    return lambda asked: models(*names) if asked.method == "GET" else script


def _nested(depth: int) -> bytes:
    return b"data: " + b"[" * depth + b"]" * depth + b"\n\n"


_CALL = {"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": "{"}}]}
_LATE_CALL = {"tool_calls": [{"index": 3, "id": "c", "function": {"name": "f", "arguments": ""}}]}
_FAR = "the prompt was: SECRET"
FAULTS: dict[str, tuple[bytes | None, ...]] = {
    "ends": (),
    "is silent": (None,),
    "comments without an end": (b": hello\n" * 1_000, None),
    "ends within an event": (b'data: {"choices": [',),
    "broken JSON": (b'data: {"choices": [}\n\n',),
    "no JSON": (b"data: hello\n\n",),
    "no UTF-8": (b'data: {"choices": "\xff\xfe"}\n\n',),
    "a list": (b"data: []\n\n",),
    "a number": (b"data: 3\n\n",),
    "null": (b"data: null\n\n",),
    "a text": (b'data: "hello"\n\n',),
    "a deep list": (_nested(100_000),),
    "an empty object": (b"data: {}\n\n",),
    "an error in OpenAI's shape": (event(error={"message": _FAR, "type": "server_error", "code": None}),),
    "an error in Anthropic's shape": (event(type="error", error={"type": "api_error", "message": _FAR}),),
    "an error that is a text": (event(error=_FAR),),
    "an error that is a list": (event(error=[_FAR]),),
    "an error with a number as its code": (event(error={"code": 500, "message": [_FAR]}),),
    "a failed response": (
        event(type="response.failed", response={"status": "failed", "error": {"message": _FAR}}),
    ),
    "a failed response without a word": (event(type="response.failed", response=None, choices=3),),
    "choices that are a text": (event(type=3, choices="hello"),),
    "choices that are numbers": (event(type=None, choices=[1, 2]),),
    "a delta that is a list": (
        event(
            type="content_block_delta",
            index=0,
            delta=["x"],
            item_id="unknown",
            choices=[{"index": 0, "delta": ["x"]}],
        ),
        event(type="response.output_text.delta", delta=["x"], choices=3),
    ),
    "a text that is a number": (
        event(
            type="content_block_delta",
            index=99,
            delta={"type": "text_delta", "text": 3},
            choices=[{"index": 0, "delta": {"content": 3}}],
        ),
        event(type="response.output_text.delta", delta=3, choices=3),
    ),
    "a choice that nobody asked for": (
        event(
            type="content_block_delta",
            index=10**9,
            delta={},
            choices=[{"index": 7, "delta": {"content": "x"}}],
        ),
        event(type="response.output_text.delta", delta={}, choices=3),
    ),
    "a place below zero": (
        event(type="content_block_start", index=-1, content_block={}, choices=[{"index": -1, "delta": {}}]),
        event(type="response.output_item.added", item=3, choices=3),
    ),
    "a call without a name": (
        event(
            type="content_block_start",
            index=5,
            content_block={"type": "tool_use", "id": "t"},
            choices=[{"index": 0, "delta": _CALL}],
        ),
        event(type="response.output_item.added", item={"type": "function_call", "id": "i"}, choices=3),
    ),
    "a call out of its order": (
        event(type="content_block_delta", index=77, delta={}, choices=[{"index": 0, "delta": _LATE_CALL}]),
        event(type="response.function_call_arguments.delta", item_id="i", delta="{", choices=3),
    ),
    "an end that comes too early": (b"data: [DONE]\n\n",),
    "a reason that is a list": (
        event(
            type="message_delta", delta={"stop_reason": ["x"]}, choices=[{"index": 0, "finish_reason": ["x"]}]
        ),
        event(type="response.completed", response=["x"], choices=3),
    ),
    "an endless line": (b"data: " + b"x" * (5 << 20),),
}
"""Faults within a stream of any protocol; the connection then ends."""

HEADS: dict[str, Script] = {
    **{
        f"status {status}": Script((b"SECRET",), status)
        for status in (401, 403, 404, 408, 500, 502, 503, 504)
    },
    "status 429": Script((), 429, headers={"retry-after": "0"}),
    "a redirect": Script((), 302, headers={"location": "http://169.254.169.254/latest"}),
    "a page": Script((b"<html>login</html>",), kind="text/html"),
    "an error body": Script((b'{"error": {"message": "SECRET"}}',), kind="application/json"),
    "an error body in Anthropic's shape": Script(
        (b'{"type": "error", "error": {"type": "api_error", "message": "SECRET"}}',), kind="application/json"
    ),
    "a body of another kind": Script((b'{"hello": 1}',), kind="application/json"),
    "lists without an end": Script((b'{"SECRET": [' + b"[]," * 30_000,), kind="application/json"),
    "an error without an end": Script((b"SECRET" * 200_000,) * 100, 500),
    "an empty body": Script((), kind="application/json"),
    "a compressed body": Script((b"\x1f\x8b" + b"x" * 100,), headers={"content-encoding": "gzip"}),
    "no HTTP": Script((b"SSH-2.0-OpenSSH_9.9\r\n",), raw=True),
    "endless headers": Script((b"HTTP/1.1 200 OK\r\n" + b"x-a: " + b"b" * 200_000,), raw=True),
    "nothing": Script((), raw=True),
    "half a head": Script((b"HTTP/1.1 200 OK\r\ncontent-type: text/ev",), raw=True),
    "a body shorter than promised": Script((b"data: ",), headers={"content-length": "1000"}),
    "a piece of a wrong size": Script(
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",),
        raw=True,
    ),
}
"""Faults of the beginning of an answer."""

"""Answers of other servers, as `greenroom chat --url` reads them."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.http.openai.chat_routes import parse_chat_request
from greenroom.http.terminal.answer_sources import chat_content, open_server
from greenroom.http.terminal.chosen_server import ChosenServer
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, ReasoningDelta, TextDelta, Usage
from greenroom.schemas.messages.messages import DocumentPart, ImagePart, Message, TextPart
from greenroom.schemas.messages.requests import ChatInput
from greenroom.schemas.wire.openai_chat import OPENAI, ChatRequest
from greenroom.schemas.wire.wire import structure
from greenroom.tests.support.hostile import pictures
from greenroom.tests.support.servers.bench_servers import Respond, chunked, delta, event, scripted_server

CONVERSATION = (Message("system", (TextPart("Be brief."),)), Message("user", (TextPart("Hello"),)))


async def ask(respond: Respond, model: str | None = None) -> tuple[list[InferenceEvent], dict[str, Any]]:
    """Return the events of one answer, and the body that the server received."""
    parameters, options = {"temperature": 0.5}, {"enable_thinking": False}
    with scripted_server(respond) as (address, bodies):
        async with (
            open_server(ChosenServer(address, model or "default"), parameters, options) as answer,
            answer(CONVERSATION) as events,
        ):
            return [event async for event in events], bodies[0]


async def test_thinking_text_and_usage_arrive_as_events() -> None:
    usage = event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 2})
    deltas = (delta(reasoning_content="hm"), delta(reasoning="hm"), delta(content="Hi"))
    events, _ = await ask(lambda _body: chunked(*deltas, usage, b"data: [DONE]\n\n"))
    assert events == [
        ReasoningDelta("hm"),
        ReasoningDelta("hm"),
        TextDelta("Hi"),
        Finished("stop", Usage(5, 2)),
    ]


async def test_the_request_carries_conversation_parameters_and_template_options() -> None:
    for model, named in ((None, "default"), ("qwen3", "qwen3")):
        _, body = await ask(lambda _body: chunked(b"data: [DONE]\n\n"), model)
        assert body["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
        ]
        assert (body["model"], body["temperature"], body["stream"]) == (named, 0.5, True)
        assert body["chat_template_kwargs"] == {"enable_thinking": False}


REFUSAL = b'{"error": {"message": "no such model"}}'


@pytest.mark.parametrize(
    ("pieces", "detail"),
    [
        ([b"HTTP/1.1 404 No\r\nContent-Length: %d\r\n\r\n%b" % (len(REFUSAL), REFUSAL)], "no such model"),
        ([b"HTTP/1.1 502 No\r\nContent-Length: 3\r\n\r\noh!"], "oh!"),
        ([*chunked(delta(content="a"), event(error={"message": "it broke"}))], "it broke"),
        ([*chunked(delta(content="a"))][:-1], "peer closed connection"),
        ([*chunked(b"data: {nonsense\n\n")], "Expecting property name"),
    ],
)
async def test_an_answer_that_goes_wrong_ends_with_the_reason(pieces: list[bytes], detail: str) -> None:
    events, _ = await ask(lambda _body: iter(pieces))
    assert isinstance(events[-1], Failed)
    assert detail in events[-1].problem.detail


async def test_a_server_that_does_not_listen_is_named() -> None:
    async with (
        open_server(ChosenServer("http://127.0.0.1:1", "default"), {}, {}) as answer,
        answer(CONVERSATION) as events,
    ):
        [failed] = [event async for event in events]
    assert isinstance(failed, Failed)
    assert "http://127.0.0.1:1" in failed.problem.detail


def test_images_and_documents_are_sent_as_openais_servers_take_them() -> None:
    photo, pdf = pictures.photo(), b"%PDF-1.7"
    message = Message("user", (ImagePart(photo), DocumentPart(pdf, name="a.pdf"), TextPart("Hello")))
    assert chat_content(Message("user", (TextPart("Hello"),))) == "Hello"
    body = {"model": "m", "messages": [{"role": "user", "content": chat_content(message)}]}
    asked = parse_chat_request(structure(body, ChatRequest, OPENAI), body, "r").input
    assert isinstance(asked, ChatInput)
    assert asked.messages == (message,)

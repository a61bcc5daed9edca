"""Answers of other servers, as `greenroom chat --url` reads them."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import click
import httpx2
import pytest
from rich.console import Console

from greenroom.http.openai.chat_routes import parse_chat_request
from greenroom.http.terminal.answer_files import speak_to_file
from greenroom.http.terminal.answer_lines import embed_lines, lines_of, rank_lines
from greenroom.http.terminal.answer_sources import chat_content, open_server
from greenroom.http.terminal.chosen_server import ChosenServer, headers_for
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, ReasoningDelta, TextDelta, Usage
from greenroom.schemas.messages.messages import DocumentPart, ImagePart, Message, TextPart
from greenroom.schemas.messages.requests import ChatInput, EmbeddingInput, SpeechInput
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
    nothing = (event(choices=None, error=None), event(choices=[{"delta": None}]))
    # JSON may hold line separators of Unicode as they are; pieces of a line come as the network cuts them.
    raw = 'data: {"choices": [{"delta": {"content": "a\u2028b\x85ü"}}]}\r\n\n'.encode()
    pieces = (*deltas, *nothing, raw[:-8], raw[-8:], usage)
    events, _ = await ask(lambda _body: chunked(*pieces, b"data: [DONE]\n\n"))
    assert events == [
        ReasoningDelta("hm"),
        ReasoningDelta("hm"),
        TextDelta("Hi"),
        TextDelta("a\u2028b\x85ü"),
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


def test_a_silent_server_is_told_by_the_name_of_the_error() -> None:
    assert ChosenServer("http://a", "m").gone(httpx2.ReadTimeout("")).detail.endswith(": ReadTimeout")


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


async def test_vectors_and_scores_of_other_texts_are_told() -> None:
    astray = b'{"data": [{"index": 3, "embedding": ""}], "results": [{"index": 3, "relevance_score": 1}]}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(astray), astray)
    quiet = Console(file=io.StringIO())
    with scripted_server(lambda _body: iter([answer])) as (address, _):
        server = ChosenServer(address, "default")
        with pytest.raises(click.ClickException, match="not as OpenAI's servers write it"):
            await embed_lines(server, EmbeddingInput(("a",)), lines_of(["a"]), quiet)
        with pytest.raises(click.ClickException, match="not as OpenAI's servers write it"):
            await rank_lines(server, "a", None, lines_of(["a"]), None, quiet)


async def test_speech_is_whole_wherever_its_bytes_are_cut(tmp_path: Path) -> None:
    samples = b"\x01\x02\x03\x04\x05\x06"
    wav = bytes(24) + (24_000).to_bytes(4, "little") + bytes(16) + samples
    cut = [base64.b64encode(piece).decode() for piece in (wav[:30], wav[30:45], wav[45:48], wav[48:])]
    deltas = (event(type="speech.audio.delta", audio=piece) for piece in cut)
    pieces = (*deltas, event(type="speech.audio.done"))
    output = tmp_path / "a.pcm"
    with scripted_server(lambda _body: chunked(*pieces)) as (address, _):
        server = ChosenServer(address, "default")
        await speak_to_file(server, SpeechInput("Hi"), "pcm", output, Console(file=io.StringIO()))
    assert output.read_bytes() == samples


def test_a_key_that_no_header_can_hold_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GREENROOM_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "schl\u00fcssel")
    with pytest.raises(click.ClickException, match="OPENAI_API_KEY is no key"):
        headers_for(None)

"""Images, documents and recordings in each protocol's requests, and the message parts they become."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest

from greenroom.http.anthropic.messages_request import parse_messages_request
from greenroom.http.ollama.request import parse_chat, parse_generate
from greenroom.http.openai.chat_routes import parse_chat_request
from greenroom.http.responses.request_parser import parse_prompt_request
from greenroom.schemas.messages.messages import (
    AudioPart,
    ContentPart,
    DocumentPart,
    ImagePart,
    Message,
    TextPart,
)
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.wire.anthropic import ANTHROPIC, PromptRequest
from greenroom.schemas.wire.ollama import OLLAMA, GenerateRequest
from greenroom.schemas.wire.ollama import ChatRequest as OllamaChat
from greenroom.schemas.wire.openai_chat import OPENAI, ChatRequest
from greenroom.schemas.wire.responses_items import RESPONSES
from greenroom.schemas.wire.responses_requests import PromptRequest as ResponsePrompt
from greenroom.schemas.wire.wire import structure
from greenroom.tests.support.hostile import pictures

PHOTO = pictures.photo()
PHOTO_TEXT = base64.b64encode(PHOTO).decode()
PHOTO_URL = f"data:image/jpeg;base64,{PHOTO_TEXT}"
PDF = b"%PDF-1.7\n%%EOF"
PDF_TEXT = base64.b64encode(PDF).decode()
PDF_URL = f"data:application/pdf;base64,{PDF_TEXT}"
SOUND = b"RIFF0000WAVE"
SOUND_TEXT = base64.b64encode(SOUND).decode()
AT = "https://example.org/a.png"


def messages_of(request: InferenceRequest | None) -> Sequence[Message]:
    assert request is not None
    assert isinstance(request.input, ChatInput)
    return request.input.messages


def chat(*messages: Any) -> Sequence[Message]:
    body = {"model": "m", "messages": list(messages)}
    return messages_of(parse_chat_request(structure(body, ChatRequest, OPENAI), body, "r"))


def anthropic(*messages: Any) -> Sequence[Message]:
    body = {"model": "m", "messages": list(messages), "max_tokens": 9}
    return messages_of(parse_messages_request(structure(body, PromptRequest, ANTHROPIC), body, "r"))


def responses(*items: Any, field: str = "input") -> Sequence[Message]:
    body = {"model": "m", field: list(items)}
    request = parse_prompt_request(structure(body, ResponsePrompt, RESPONSES), body, "r")
    assert request.self_contained is not None
    return messages_of(request.self_contained.request)


def ollama(*messages: Any) -> Sequence[Message]:
    body = {"model": "m", "messages": list(messages)}
    return messages_of(parse_chat(structure(body, OllamaChat, OLLAMA), body, "r"))


def generate(**fields: Any) -> Sequence[Message]:
    body = {"model": "m", **fields}
    return messages_of(parse_generate(structure(body, GenerateRequest, OLLAMA), body, "r"))


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def parts(message: Message) -> list[ContentPart]:
    return [part for part in message.content if not isinstance(part, TextPart) or part.text]


def test_a_chats_parts() -> None:
    [message] = chat(
        user(
            {"type": "text", "text": "a"},
            {"type": "image_url", "image_url": {"url": PHOTO_URL, "detail": "low"}},
            {"type": "image_url", "image_url": AT},
            {"type": "file", "file": {"file_data": PDF_URL, "filename": "a.pdf"}},
            {"type": "file", "file": {"file_data": PHOTO_URL}},
            {"type": "input_audio", "input_audio": {"data": SOUND_TEXT, "format": "wav"}},
            {"type": "text", "text": "b"},
        )
    )
    assert parts(message) == [
        TextPart("a"),
        ImagePart(PHOTO, detail="low"),
        ImagePart(url=AT),
        DocumentPart(PDF, name="a.pdf"),
        ImagePart(PHOTO),
        AudioPart(SOUND),
        TextPart("b"),
    ]
    assert [getattr(part, "param", None) for part in message.content][1::2] == [
        "messages[0].content[1].image_url.url",
        "messages[0].content[3].file.file_data",
        "messages[0].content[5].input_audio.data",
    ]


def test_a_chats_result_of_a_tool() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    *_, result = chat(
        {"role": "user", "content": "look"},
        {"role": "assistant", "tool_calls": [call]},
        {
            "role": "tool",
            "tool_call_id": "c",
            "content": [{"type": "image_url", "image_url": {"url": PHOTO_URL}}],
        },
    )
    assert (result.role, parts(result)) == ("tool", [ImagePart(PHOTO)])


def block(kind: str, **source: Any) -> dict[str, Any]:
    return {"type": kind, "source": source}


def test_a_messages_blocks() -> None:
    [message] = anthropic(
        user(
            {"type": "text", "text": "a"},
            {"type": "text", "text": "b"},
            block("image", type="base64", media_type="image/jpeg", data=PHOTO_TEXT),
            block("image", type="url", url=AT),
            {
                **block("document", type="base64", media_type="application/pdf", data=PDF_TEXT),
                "title": "t",
                "context": "c",
            },
            block("document", type="url", url=AT),
            block("document", type="text", media_type="text/plain", data="d"),
            block(
                "document",
                type="content",
                content=[
                    {"type": "text", "text": "e"},
                    block("image", type="base64", media_type="image/png", data=PHOTO_TEXT),
                ],
            ),
        )
    )
    assert parts(message) == [
        TextPart("a\n\nb"),
        ImagePart(PHOTO),
        ImagePart(url=AT),
        TextPart("<context>c</context>"),
        DocumentPart(PDF, name="t"),
        DocumentPart(url=AT),
        TextPart("<document>\n<content>d</content>\n</document>\n\n<document>\n\ne"),
        ImagePart(PHOTO),
        TextPart("</document>"),
    ]
    assert message.content[1].param == "messages[0].content[2].source.data"  # type: ignore[union-attr]


def test_a_messages_result_of_a_tool() -> None:
    image = block("image", type="base64", media_type="image/png", data=PHOTO_TEXT)
    *_, failed, shown, paged = anthropic(
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in "abc"],
        },
        user(
            {"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": [image]},
            {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "x"}, image]},
            {
                "type": "tool_result",
                "tool_use_id": "c",
                "content": [block("document", type="base64", media_type="application/pdf", data=PDF_TEXT)],
            },
        ),
    )
    assert parts(failed) == [TextPart("Error: "), ImagePart(PHOTO)]
    assert parts(shown) == [TextPart("x"), ImagePart(PHOTO)]
    assert parts(paged) == [DocumentPart(PDF)]


def test_a_responses_items() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    custom = {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "x"}
    image = {"type": "input_image", "image_url": PHOTO_URL, "detail": "high"}
    screen = {"type": "computer_screenshot", "image_url": PHOTO_URL}
    messages = responses(
        user(
            {"type": "input_text", "text": "a"},
            image,
            {"type": "input_image", "image_url": AT},
            {"type": "input_file", "file_data": PDF_URL, "filename": "a.pdf"},
            {"type": "input_file", "file_url": AT},
            {"type": "input_audio", "input_audio": {"data": SOUND_TEXT, "format": "mp3"}},
        ),
        call,
        {"type": "function_call_output", "call_id": "c", "output": [image]},
        custom,
        {
            "type": "custom_tool_call_output",
            "call_id": "d",
            "output": [{"type": "input_text", "text": "b"}, image],
        },
        {"type": "computer_call", "call_id": "e", "id": "cc", "action": {"type": "screenshot"}},
        {"type": "computer_call_output", "call_id": "e", "output": screen},
        {"type": "image_generation_call", "id": "ig", "status": "completed", "result": PHOTO_TEXT},
        {
            "type": "code_interpreter_call",
            "id": "ci",
            "code": "1",
            "outputs": [{"type": "image", "url": PHOTO_URL}, {"type": "image", "url": "https://files/1"}],
        },
    )
    seen = ImagePart(PHOTO, detail="high")
    assert parts(messages[0]) == [
        TextPart("a"),
        seen,
        ImagePart(url=AT),
        DocumentPart(PDF, name="a.pdf"),
        DocumentPart(url=AT),
        AudioPart(SOUND),
    ]
    results = [parts(message) for message in messages if message.role == "tool"]
    assert results == [
        [seen],
        [TextPart("b"), seen],
        [ImagePart(PHOTO)],
        [ImagePart(PHOTO)],
        [TextPart("[]"), ImagePart(PHOTO)],
    ]
    assert [call.name for message in messages for call in message.tool_calls] == [
        *("f", "g", "computer", "image_generation", "code_interpreter")
    ]


def test_messages_in_place_of_a_responses_items() -> None:
    [message] = responses(
        user({"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": PHOTO_URL}}),
        field="messages",
    )
    assert parts(message) == [TextPart("a"), ImagePart(PHOTO)]


def test_ollamas_images() -> None:
    assert parts(generate(prompt="a", images=[PHOTO_TEXT])[0]) == [ImagePart(PHOTO), TextPart("a")]
    assert parts(generate(images=[PHOTO_TEXT])[0]) == [ImagePart(PHOTO)]
    call = {"function": {"name": "look", "arguments": {}}}
    said, _, result = ollama(
        {"role": "user", "content": "a", "images": [PHOTO_TEXT, PHOTO_URL]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": "b", "images": [PHOTO_TEXT]},
    )
    assert parts(said) == [ImagePart(PHOTO), ImagePart(PHOTO), TextPart("a")]
    assert parts(result) == [ImagePart(PHOTO), TextPart("b")]


def image_url(value: Any) -> Any:
    return lambda: chat(user({"type": "image_url", "image_url": value}))


def input_part(**part: Any) -> Any:
    return lambda: responses(user(part))


@pytest.mark.parametrize(
    ("send", "param"),
    [
        (image_url({"url": "data:image/png;base64,?"}), "messages[0].content[0].image_url.url"),
        (image_url({"url": PHOTO_URL, "detail": "most"}), "messages[0].content[0].image_url.detail"),
        (image_url({"url": 1}), "messages[0].content[0].image_url.url"),
        (image_url([]), "messages[0].content[0].image_url"),
        (image_url(None), "messages[0].content[0].image_url"),
        (
            lambda: chat(user({"type": "file", "file": {"file_id": "f"}})),
            "messages[0].content[0].file.file_id",
        ),
        (lambda: chat(user({"type": "file", "file": {}})), "messages[0].content[0].file.file_data"),
        (lambda: chat(user({"type": "input_audio"})), "messages[0].content[0].input_audio"),
        (
            lambda: chat(
                {"role": "assistant", "content": user({"type": "image_url", "image_url": AT})["content"]}
            ),
            "messages[0].content[0]",
        ),
        (
            lambda: chat(
                {"role": "system", "content": user({"type": "image_url", "image_url": AT})["content"]}
            ),
            "messages[0].content[0]",
        ),
        (
            lambda: anthropic(user(block("image", type="file", file_id="f"))),
            "messages[0].content[0].source.file_id",
        ),
        (
            lambda: anthropic(user(block("image", type="base64", media_type="image/bmp", data=PHOTO_TEXT))),
            "messages[0].content[0].source.media_type",
        ),
        (
            lambda: anthropic(user(block("image", type="base64", data=PHOTO_TEXT))),
            "messages[0].content[0].source.media_type",
        ),
        (
            lambda: anthropic(user(block("image", type="base64", media_type="image/png", data=1))),
            "messages[0].content[0].source.data",
        ),
        (
            lambda: anthropic(user(block("image", type="url", url="file:///a"))),
            "messages[0].content[0].source.url",
        ),
        (
            lambda: anthropic(user(block("document", type="file", file_id="f"))),
            "messages[0].content[0].source.file_id",
        ),
        (lambda: anthropic(user({"type": "image", "source": "x"})), "messages[0].content[0].source"),
        (
            lambda: anthropic(
                {"role": "assistant", "content": [block("image", type="url", url=AT)]},
                {"role": "user", "content": "a"},
            ),
            "messages[0].content[0]",
        ),
        (input_part(type="input_image", file_id="f"), "input[0].content[0].file_id"),
        (input_part(type="input_image"), "input[0].content[0].image_url"),
        (input_part(type="input_image", image_url={"url": AT}), "input[0].content[0].image_url"),
        (input_part(type="input_image", image_url=AT, detail="x"), "input[0].content[0].detail"),
        (input_part(type="input_file", file_id="f"), "input[0].content[0].file_id"),
        (input_part(type="input_file"), "input[0].content[0].file_data"),
        (
            input_part(type="input_audio", input_audio={"data": "AAAA"}),
            "input[0].content[0].input_audio.format",
        ),
        (
            lambda: responses({"role": "developer", "content": [{"type": "input_image", "image_url": AT}]}),
            "input[0].content[0]",
        ),
        (
            lambda: responses({"type": "computer_call_output", "call_id": "c", "output": {"image_url": 1}}),
            "input[0].output.image_url",
        ),
        (lambda: generate(prompt="a", images=["?"]), "images[0]"),
        (lambda: generate(prompt="a", raw=True, images=[PHOTO_TEXT]), "images"),
        (lambda: ollama({"role": "user", "images": [PDF_URL]}), "messages[0].images[0]"),
        (lambda: ollama({"role": "user", "images": [AT]}), "messages[0].images[0]"),
        (lambda: ollama({"role": "system", "images": [PHOTO_TEXT]}), "messages[0].images"),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(send: Any, param: str) -> None:
    with pytest.raises(ProblemError) as caught:
        send()
    assert (caught.value.problem.status, caught.value.problem.param) == (400, param)


@pytest.mark.parametrize(
    "send",
    [
        lambda: chat(user({"type": "video_url", "video_url": {"url": AT}})),
        input_part(type="input_video", video_url=AT),
    ],
)
def test_videos_are_not_implemented(send: Any) -> None:
    with pytest.raises(ProblemError) as caught:
        send()
    assert caught.value.problem.status == 501


def test_a_requests_files_are_measured_together() -> None:
    large = base64.b64encode(bytes(17 << 20)).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{large}"}}
    with pytest.raises(ProblemError, match="may have at most 50 MB"):
        chat(user(image), user(image), user(image))

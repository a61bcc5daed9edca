"""The order in which prompts are prepared."""

from __future__ import annotations

from greenroom.actors.model.prompt_queue import (
    MAX_GRAMMAR,
    MAX_PASSING,
    MAX_SCHEMA,
    MAX_SHORT,
    PromptQueue,
    is_long,
)
from greenroom.schemas.messages import Message, TextPart
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.requests import ChatInput, InferenceRequest, RawInput, RequestInput
from greenroom.schemas.response_format import JsonSchemaFormat, LarkFormat, ResponseFormat


def test_short_prompts_pass_long_ones() -> None:
    queue: PromptQueue[str] = PromptQueue()
    for name in ("long 1", "short 1", "long 2", "short 2"):
        queue.put(name, long=name.startswith("long"))
    queue.end()
    assert [queue.take() for _ in range(5)] == ["short 1", "short 2", "long 1", "long 2", None]


def test_a_long_prompt_is_passed_by_so_many_and_no_more() -> None:
    queue: PromptQueue[str] = PromptQueue()
    queue.put("long", long=True)
    taken = []
    while "long" not in taken:
        queue.put("short", long=False)
        queue.put("short", long=False)
        taken.append(queue.take())
    assert taken == ["short"] * MAX_PASSING + ["long"]
    assert queue.take() == "short"


def test_what_waits_can_be_taken_back() -> None:
    queue: PromptQueue[str] = PromptQueue()
    queue.put("long", long=True)
    queue.put("short", long=False)
    assert queue.clear() == ["short", "long"]
    queue.end()
    assert queue.take() is None


def request(asked: RequestInput, response_format: ResponseFormat | None = None) -> InferenceRequest:
    return InferenceRequest("r", ModelKey("m"), asked, response_format=response_format)


def test_long_is_what_has_much_text_or_many_parts() -> None:
    def chat(*texts: str) -> InferenceRequest:
        return request(ChatInput(tuple(Message("user", (TextPart(text),)) for text in texts)))

    assert not is_long(chat("a" * 60_000))
    assert is_long(chat("a" * MAX_SHORT))
    assert is_long(chat(*["a"] * 1_000))
    assert not is_long(chat(*["a"] * 100))
    assert is_long(request(RawInput("a" * (MAX_SHORT + 1))))
    assert not is_long(request(RawInput(tuple(range(100_000)))))


def test_long_is_what_takes_long_to_compile() -> None:
    def names(count: int) -> JsonSchemaFormat:
        return JsonSchemaFormat({"properties": {f"p{i}": {"type": "string"} for i in range(count)}})

    assert not is_long(request(RawInput("a"), names(400)))
    assert is_long(request(RawInput("a"), names(600)))
    assert is_long(request(RawInput("a"), JsonSchemaFormat({"enum": [[0] * MAX_SCHEMA]})))
    assert not is_long(request(RawInput("a"), LarkFormat("a" * MAX_GRAMMAR)))
    assert is_long(request(RawInput("a"), LarkFormat("a" * (MAX_GRAMMAR + 1))))

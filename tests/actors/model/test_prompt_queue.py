"""The order in which prompts are prepared."""

from __future__ import annotations

from greenroom.actors.model.prompt_queue import MAX_PASSING, MAX_SHORT, PromptQueue, is_long
from greenroom.schemas.messages import Message, TextPart
from greenroom.schemas.requests import ChatInput, RawInput


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


def test_long_is_what_has_much_text_or_many_parts() -> None:
    def chat(*texts: str) -> ChatInput:
        return ChatInput(tuple(Message("user", (TextPart(text),)) for text in texts))

    assert not is_long(chat("a" * 60_000))
    assert is_long(chat("a" * MAX_SHORT))
    assert is_long(chat(*["a"] * 1_000))
    assert not is_long(chat(*["a"] * 100))
    assert is_long(RawInput("a" * (MAX_SHORT + 1)))
    assert not is_long(RawInput(tuple(range(100_000))))

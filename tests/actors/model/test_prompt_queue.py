"""The order in which prompts are prepared."""

from __future__ import annotations

from greenroom.actors.model.prompt_queue import (
    MAX_COUNTED,
    MAX_GRAMMAR,
    MAX_PASSING,
    MAX_SCHEMA,
    MAX_SHORT,
    PromptQueue,
    cost_of,
)
from greenroom.schemas.messages.messages import ImagePart, Message, TextPart
from greenroom.schemas.messages.requests import (
    ChatInput,
    EmbeddingInput,
    InferenceRequest,
    JsonSchemaFormat,
    LarkFormat,
    RawInput,
    RequestInput,
    ResponseFormat,
    ScoreInput,
)
from greenroom.schemas.model_key import ModelKey

SHORT, LONG = MAX_SHORT, MAX_SHORT + 1


def taken(queue: PromptQueue[str]) -> str:
    queued = queue.take()
    assert queued is not None
    return queued.prompt


def test_short_prompts_pass_long_ones() -> None:
    queue: PromptQueue[str] = PromptQueue()
    for name in ("long 1", "short 1", "long 2", "short 2"):
        queue.put(name, LONG if name.startswith("long") else SHORT)
    queue.end()
    assert [taken(queue) for _ in range(4)] == ["short 1", "short 2", "long 1", "long 2"]
    assert queue.take() is None


def test_a_long_prompt_is_passed_by_so_many_and_no_more() -> None:
    queue: PromptQueue[str] = PromptQueue()
    queue.put("long", LONG)
    order = []
    while "long" not in order:
        queue.put("short", SHORT)
        queue.put("short", SHORT)
        order.append(taken(queue))
    assert order == ["short"] * MAX_PASSING + ["long"]
    assert taken(queue) == "short"


def test_what_waits_lets_others_of_its_client_go() -> None:
    queue: PromptQueue[str] = PromptQueue()
    queue.put("document", LONG)
    queue.put("image", LONG)
    sliced = queue.take()
    assert sliced is not None
    assert sliced.prompt == "document"
    queue.put_back(sliced, behind=True)
    assert [taken(queue), taken(queue)] == ["image", "document"]


def test_what_waits_does_not_have_every_turn_of_clients_that_had_more() -> None:
    queue: PromptQueue[str] = PromptQueue()
    queue.put("drawing", LONG, "10.0.0.1")
    queue.put("waiting for that", LONG, "10.0.0.2")
    for at in range(4):
        queue.put(f"image {at}", LONG, "10.0.0.1")
    order: list[str] = []
    while order.count("drawing") < 4:
        assert len(order) < 50
        queued = queue.take()
        assert queued is not None
        order.append(queued.prompt)
        if not queued.prompt.startswith("image"):
            queue.put_back(queued, behind=True)
    assert order.count("waiting for that") > 4


def test_short_prompts_pass_one_that_waits_as_they_pass_any_long_one() -> None:
    queue: PromptQueue[str] = PromptQueue()
    queue.put("drawing", LONG)
    queued = queue.take()
    assert queued is not None
    queue.put_back(queued, behind=True)
    for _ in range(MAX_PASSING + 1):
        queue.put("short", SHORT)
    assert [taken(queue) for _ in range(MAX_PASSING + 2)] == ["short"] * MAX_PASSING + ["drawing", "short"]


def test_slices_of_a_long_prompt_and_short_ones_take_turns() -> None:
    queue: PromptQueue[str] = PromptQueue()
    queue.put("long", LONG)
    sliced = queue.take()
    assert sliced is not None
    order = []
    for _ in range(3):
        queue.put("short", SHORT)
        queue.put("short", SHORT)
        queue.put_back(sliced)
        order += [taken(queue), taken(queue)]
    assert order == ["short", "long"] * 3


def test_the_smallest_prompt_passes_others_and_the_oldest_is_not_left_waiting() -> None:
    for scale in (1, LONG):
        queue: PromptQueue[str] = PromptQueue()
        for name, cost in (("old", 9), ("large", 8), ("larger", 9), ("small", 1)):
            queue.put(name, cost * scale)
        assert [taken(queue) for _ in range(4)] == ["old", "small", "large", "larger"]


def test_clients_take_turns_by_what_their_prompts_cost() -> None:
    queue: PromptQueue[str] = PromptQueue()
    for at in range(4):
        queue.put(f"crowd {at}", 1000, "10.0.0.1")
    queue.put("other", 1000, "10.0.0.2")
    assert [taken(queue) for _ in range(2)] == ["crowd 0", "other"]


def test_what_waits_can_be_taken_back() -> None:
    queue: PromptQueue[str] = PromptQueue()
    queue.put("long", LONG)
    queue.put("short", SHORT)
    assert queue.clear() == ["short", "long"]
    queue.end()
    assert queue.take() is None


def cost(asked: RequestInput, response_format: ResponseFormat | None = None) -> int:
    return cost_of(InferenceRequest("r", ModelKey("m"), asked, response_format=response_format))


def test_much_text_and_many_parts_cost_much() -> None:
    def chat(*texts: str) -> int:
        return cost(ChatInput(tuple(Message("user", (TextPart(text),)) for text in texts)))

    assert chat("a" * 60_000) <= MAX_SHORT < chat("a" * MAX_SHORT)
    assert chat(*["a"] * 100) <= MAX_SHORT < chat(*["a"] * 1_000)
    assert cost(RawInput("a" * LONG)) == LONG
    assert cost(RawInput(tuple(range(100_000)))) == 0
    assert cost(ChatInput((Message("user", (ImagePart(data=b"x"),)),))) > MAX_SHORT
    assert cost(EmbeddingInput(("a",) * 100)) < cost(EmbeddingInput(("a",) * 200))
    assert cost(ScoreInput((("a", "b"),) * 10_000)) > MAX_SHORT
    assert MAX_COUNTED < cost(EmbeddingInput(("a" * 100,) * 100_000)) < MAX_COUNTED + MAX_SHORT


def test_what_takes_long_to_compile_costs_much() -> None:
    def names(count: int) -> JsonSchemaFormat:
        return JsonSchemaFormat({"properties": {f"p{i}": {"type": "string"} for i in range(count)}})

    asked = RawInput("a")
    assert cost(asked, names(400)) <= MAX_SHORT < cost(asked, names(600))
    assert cost(asked, JsonSchemaFormat({"enum": [[0] * MAX_SCHEMA]})) > MAX_SHORT
    assert cost(asked, LarkFormat("a" * MAX_GRAMMAR)) <= MAX_SHORT
    assert cost(asked, LarkFormat("a" * (MAX_GRAMMAR + 1))) > MAX_SHORT


def test_whose_last_prompt_was_large_competes_as_a_newcomer_after_an_idle_time() -> None:
    queue: PromptQueue[str] = PromptQueue()
    queue.put("large", SHORT, "before")
    queue.put("small", 10, "other")
    assert {taken(queue), taken(queue)} == {"large", "small"}
    for _ in range(10):
        queue.put("before", 10, "before")
        queue.put("new", 10, "new")
    assert [taken(queue) for _ in range(10)].count("before") == 5

"""`greenroom.testing`: the kit for tests of other programs, used as these use it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import trio

from greenroom.api import (
    ChatInput,
    DescribePool,
    Failed,
    Finished,
    Generation,
    Message,
    ModelState,
    PoolStatus,
    ProblemError,
    System,
    TextDelta,
    TextPart,
    Tool,
    ToolCallDelta,
    chat,
    create_app,
    generate,
)
from greenroom.schemas.problems import insufficient_memory
from greenroom.testing import Faults, OpenScripted

LONG = "word " * 100


def asking(text: str) -> ChatInput:
    return ChatInput((Message("user", (TextPart(text),)),))


async def ended(generation: Generation) -> Finished | Failed:
    with generation:
        *_, last = [event async for event in generation]
    assert isinstance(last, Finished | Failed)
    return last


async def states(system: System) -> dict[str, ModelState]:
    status = await system.pool.ask(DescribePool(), PoolStatus)
    assert isinstance(status, PoolStatus)
    return {each.key.model: each.state for each in status.models}


async def test_answers_come_in_the_order_of_the_list(scripted_system: OpenScripted) -> None:
    async with scripted_system(["One.", "Two."]) as system:
        answers = [await chat(system, "Hello!") for _ in range(3)]
        end = await ended(generate(system, asking("Hello!"), max_tokens=1, n=2))
    assert answers == ["One.", "Two.", "Two."]
    assert isinstance(end, Finished)
    assert (end.reason, end.usage.generated) == ("length", 1)


async def test_a_call_is_read_by_the_models_real_parser(scripted_system: OpenScripted) -> None:
    call = '<tool_call>\n{"name": "look", "arguments": {"at": "it"}}\n</tool_call>'
    asked = ChatInput(asking("Look!").messages, tools=(Tool("look"),))
    async with scripted_system([call]) as system:
        with generate(system, asked) as events:
            received = [event async for event in events]
    called = [event for event in received if isinstance(event, ToolCallDelta)]
    assert (called[0].name, "".join(event.arguments for event in called)) == ("look", '{"at": "it"}')
    assert isinstance(received[-1], Finished)
    assert received[-1].reason == "tool_calls"


async def test_the_application_is_asked_by_its_test_client(scripted_system: OpenScripted) -> None:
    async with scripted_system(["Hello, you!"], "small") as system:
        client = create_app(system, system.settings).test_client()
        body = {"model": "small", "messages": [{"role": "user", "content": "Hello!"}]}
        answer = await (await client.post("/v1/chat/completions", json=body)).get_json()
    assert answer["choices"][0]["message"]["content"] == "Hello, you!"


async def test_models_with_names_are_loaded_and_unloaded_for_each_other(
    scripted_system: OpenScripted, faults: Faults
) -> None:
    async with scripted_system(["Yes."], "a", "b", max_loaded_models=1) as system:
        for model in ("a", "b"):
            await chat(system, "Are you there?", model=model)
        found = await states(system)
    assert faults.loads == ["a", "b"]
    assert found == {"a": ModelState.IDLE, "b": ModelState.READY}


@pytest.mark.parametrize(
    ("plant", "code"),
    [
        (lambda faults: faults.crash_prompt.add("Boom!"), "internal_error"),
        (lambda faults: faults.crash.add("Boom!"), "model_crashed"),
        (lambda faults: faults.out_of_memory.add("Boom!"), "model_crashed"),
    ],
)
async def test_a_fault_meets_the_requests_that_it_names(
    scripted_system: OpenScripted, faults: Faults, plant: Callable[[Faults], None], code: str
) -> None:
    plant(faults)
    async with scripted_system([LONG]) as system:
        assert isinstance(await ended(generate(system, asking("Hello!"))), Finished)
        end = await ended(generate(system, asking("Boom!")))
        assert isinstance(end, Failed)
        assert end.problem.code == code
        assert isinstance(await ended(generate(system, asking("Hello!"))), Finished)


async def test_a_load_is_held_and_fails_as_planted(scripted_system: OpenScripted, faults: Faults) -> None:
    faults.gate = threading.Event()
    faults.load["b"] = ProblemError(insufficient_memory("b", 2, 1))
    async with scripted_system(["Yes."], "a", "b") as system:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(chat, system, "Hello!")
            while not faults.loads:  # noqa: ASYNC110
                await trio.sleep(0.001)
            assert (await states(system))["a"] is ModelState.LOADING
            faults.gate.set()
        with pytest.raises(ProblemError) as refused:
            await chat(system, "Hello!", model="b")
    assert refused.value.problem.status == 507


async def test_a_step_takes_as_long_as_its_request_is_told_to(
    scripted_system: OpenScripted, faults: Faults
) -> None:
    faults.slow["Slowly!"] = 3600.0
    async with scripted_system([LONG]) as system:
        with generate(system, asking("Slowly!")) as events:
            with trio.move_on_after(0.2) as scope:
                async for event in events:
                    assert not isinstance(event, TextDelta | Finished)
            assert scope.cancelled_caught
            faults.slow.clear()
            faults.release.set()
            assert [event async for event in events if isinstance(event, Finished)]


async def test_a_model_hangs_until_it_is_released_and_another_answers(
    scripted_system: OpenScripted, faults: Faults
) -> None:
    faults.hang.add("Hang!")
    async with scripted_system([LONG], "a", "b") as system, trio.open_nursery() as nursery:
        ends: list[Finished | Failed] = []

        async def ask() -> None:
            ends.append(await ended(generate(system, asking("Hang!"), model="a")))

        nursery.start_soon(ask)
        assert await trio.to_thread.run_sync(faults.hangs.wait, 300)
        assert await chat(system, "Hello!", model="b")
        assert not ends
        faults.release.set()
    assert isinstance(ends[0], Finished)

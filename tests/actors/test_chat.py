"""Chat calls of programs that run Greenroom as a library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from greenroom.actors.conversation import chat, generate
from greenroom.actors.core.ref import answer_or_failed
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Admitted, Failed, Finished, TextDelta
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.messages.generation import Parameters
from greenroom.schemas.messages.messages import Message, TextPart, Tool
from greenroom.schemas.messages.requests import (
    ChatInput,
    EmbeddingInput,
    InferenceRequest,
    RawInput,
    RequestInput,
)
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem, ProblemError, draining
from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines

HELLO = (Message("user", (TextPart("Hello!"),)),)


@pytest.fixture
def settings(tiny_model: Callable[..., Path], tiny_encoder: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("llama")), str(tiny_encoder("bert"))), shutdown_timeout=60.0)


async def test_a_question_and_a_conversation_are_answered(settings: Settings) -> None:
    async with open_system(settings) as system:
        answer = await chat(system, "Hello!", temperature=0.0, max_tokens=8)
        conversation = [Message("user", (TextPart("Hello!"),))]
        assert answer
        assert await chat(system, conversation, model="llama", temperature=0.0, max_tokens=8) == answer
        first_of_two = await chat(system, "Hello!", temperature=0.0, max_tokens=8, n=2)
        assert first_of_two == answer
        with pytest.raises(ProblemError, match="does not exist here") as refused:
            await chat(system, "Hello!", model="nobody")
        assert refused.value.problem.status == 404


async def test_a_model_that_is_no_text_fails_its_request_alone(settings: Settings) -> None:
    nothing: Any = None
    async with open_system(settings) as system:
        with pytest.raises(ProblemError, match="`model` is of type NoneType, but it must be a string"):
            await chat(system, "Hello!", model=nothing)
        with Generation(system.pool, InferenceRequest("r", ModelKey(nothing), ChatInput(HELLO))) as events:
            [failed] = [event async for event in events]
        assert isinstance(failed, Failed)
        assert failed.problem.code == "internal_error"
        assert await chat(system, "Hello!", max_tokens=3)


async def test_what_is_looked_up_when_the_system_closes_fails(settings: Settings) -> None:
    faults, problems = Faults(hang_find={"llama"}), list[Problem]()

    async def ask() -> None:
        try:
            await chat(system, "Hello!", model="llama")
        except ProblemError as error:
            problems.append(error.problem)

    async def describe() -> None:
        found = await answer_or_failed(system.pool, DescribeModel("llama"), ModelDescriptions)
        problems.append(found.problem if isinstance(found, Failed) else Problem(200, "found", ""))

    async with trio.open_nursery() as nursery:
        async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
            nursery.start_soon(ask)
            nursery.start_soon(describe)
            await trio.testing.wait_all_tasks_blocked()
        faults.release.set()
    assert problems == [draining(), draining()]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"models": ("nonsense",)}, "models = 'nonsense': there is no folder 'nonsense' with a config.json"),
        ({"db": "/dev/null/a/x.db"}, "db = '/dev/null/a/x.db': Not a directory"),
    ],
)
async def test_places_that_are_not_there_are_refused_by_the_name_of_their_setting(
    given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        async with open_system(Settings(**given)):
            pass


@pytest.mark.parametrize(
    "error",
    [
        ValueError("one's own"),
        KeyboardInterrupt(),
        ExceptionGroup("of the body's own nursery", [ValueError("within")]),
    ],
)
async def test_an_exception_of_the_body_leaves_a_system_as_itself(error: BaseException) -> None:
    cause = error.__context__ = KeyError("handled when it was raised")
    with pytest.raises(type(error)) as caught:
        async with open_system(Settings()):
            raise error
    assert caught.value is error
    assert error.__context__ is cause
    assert not error.__suppress_context__


async def test_a_problem_of_chat_is_caught_outside_of_its_system(settings: Settings) -> None:
    with pytest.raises(ProblemError) as refused:
        async with open_system(settings) as system:
            await chat(system, "Hello!", model="nobody")
    assert refused.value.problem.code == "model_not_found"


async def test_several_exceptions_leave_a_system_as_one_flat_group() -> None:
    async def fail(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("of a child")

    async def run() -> None:
        async with open_system(Settings()) as system:
            await system.start(fail)
            raise ValueError("of the body")

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert {type(error) for error in caught.value.exceptions} == {ValueError, KeyError}


async def test_any_kind_of_model_is_asked_with_typed_parameters(settings: Settings) -> None:
    async with open_system(settings) as system:
        with generate(system, RawInput("Hello"), temperature=0.0, max_tokens=3) as events:
            answer = [event async for event in events]
        parameters = next(event.parameters for event in answer if isinstance(event, Admitted))
        assert parameters is not None
        assert (parameters.temperature, parameters.max_tokens) == (0.0, 3)
        assert any(isinstance(event, TextDelta) for event in answer)
        assert isinstance(answer[-1], Finished)

        with generate(system, EmbeddingInput(("one", "two")), model="bert") as events:
            vectors = [event async for event in events]
        assert sum(isinstance(event, Vector) for event in vectors) == 2
        assert "values=<64 numbers>" in repr(next(event for event in vectors if isinstance(event, Vector)))

        with generate(system, RawInput("Hello"), model="bert") as events:
            refused = [event async for event in events]
        assert isinstance(refused[-1], Failed)
        with pytest.raises(ProblemError, match="`temperature`"):
            generate(system, RawInput("Hello"), temperature=9.0)


@pytest.mark.parametrize(
    ("asked", "values", "most"),
    [
        (RawInput("Hello"), Parameters(ignore_eos=True), 16),
        (ChatInput(HELLO), Parameters(ignore_eos=True), 32),
        (ChatInput(HELLO), Parameters(ignore_eos=True, max_tokens=3), 3),
        (ChatInput(HELLO), Parameters(ignore_eos=True, max_tokens=1000), None),
    ],
)
async def test_admission_tells_the_limit_that_is_enforced(
    settings: Settings, asked: RequestInput, values: Parameters, most: int | None
) -> None:
    async with open_system(attrs.evolve(settings, max_context=64)) as system:
        with generate(system, asked, **values) as events:
            answer = [event async for event in events]
    admitted = next(event for event in answer if isinstance(event, Admitted))
    assert admitted.parameters is not None
    assert admitted.parameters.max_tokens == (most or 64 - admitted.prompt_tokens)
    assert isinstance(answer[-1], Finished)
    assert answer[-1].usage.generated == admitted.parameters.max_tokens


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (ChatInput((Message("user", (TextPart("cut \ud83e"),)),)), "messages[0].content[0].text"),
        (ChatInput(HELLO, tools=(Tool("a", parameters={"x": ["\udc00"]}),)), "tools[0].parameters['x'][0]"),
        (ChatInput(HELLO, tools=(Tool("a", parameters={"\udc00": 1}),)), "the keys of tools[0].parameters"),
        (RawInput("\udfff"), "prompt"),
    ],
)
async def test_half_of_a_surrogate_pair_is_refused_by_the_name_of_its_field(
    settings: Settings, asked: RequestInput, field: str
) -> None:
    async with open_system(settings) as system:
        with pytest.raises(ProblemError, match="half of a surrogate pair") as refused:
            generate(system, asked)
        assert (refused.value.problem.status, refused.value.problem.param) == (400, field)
        request = InferenceRequest("mine", ModelKey("default"), asked)
        with Generation(system.pool, request) as events:  # as a program makes one without `generate`
            *_, last = [event async for event in events]
        assert isinstance(last, Failed)
        assert (last.problem.code, last.problem.param) == ("invalid_value", field)


async def test_half_of_a_surrogate_pair_is_refused_in_questions_and_parameters(settings: Settings) -> None:
    async with open_system(settings) as system:
        for question, values in (
            ("\ud800", {}),
            ("Hello", {"model": "\ud800"}),
            ("Hello", {"stop": ["\ud800"]}),
        ):
            with pytest.raises(ProblemError, match="half of a surrogate pair") as refused:
                await chat(system, question, **values)
            assert refused.value.problem.status == 400

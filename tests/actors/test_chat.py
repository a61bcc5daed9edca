"""Chat calls of programs that run Greenroom as a library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.actors.chat import chat, generate
from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Admitted, Failed, Finished, TextDelta
from greenroom.schemas.events.result_events import Vector
from greenroom.schemas.messages.messages import Message, TextPart
from greenroom.schemas.messages.requests import EmbeddingInput, RawInput
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings


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

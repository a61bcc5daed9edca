"""Turns of stored conversations: cache hits, branches, and truncation."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import attrs
import openai
import pytest
from openai.types.responses import Response

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.engines.watched_engines import WatchedEngines
from greenroom.tests.support.servers.bounded_waits import wait_until
from greenroom.tests.support.servers.http_servers import Served, serving

TOOL = {
    "type": "function",
    "name": "read",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
SEA = "the sea is wide and deep. " * 5


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return attrs.evolve(settings, db=str(tmp_path / "store.db"))


async def turn(served: Served, asked: Any, **fields: Any) -> Response:
    wanted = {"model": "qwen3", "max_output_tokens": 16, "temperature": 0, "input": asked, **fields}
    answer = await ask(served, lambda client: client.responses.create(**wanted))
    assert isinstance(answer, Response)
    return answer


def prompt_of(answer: Response) -> tuple[int, int]:
    """Return the number of prompt tokens, and of those found in the cache."""
    assert answer.usage
    return answer.usage.input_tokens, answer.usage.input_tokens_details.cached_tokens


@pytest.mark.parametrize("model", ["qwen3", "llama"])
async def test_a_turn_finds_the_prompts_before_it_in_the_cache(settings: Settings, model: str) -> None:
    async with serving(settings) as served:
        ask_for = partial(turn, served, model=model, instructions="Be brief.")
        conversation = await ask(served, lambda client: client.conversations.create())
        known = 0
        for index in range(3):
            answer = await ask_for(f"{index}: {SEA}", conversation=conversation.id)
            prompt, cached = prompt_of(answer)
            assert cached >= 0.95 * known
            known = prompt
        # A turn of a conversation can be continued outside of it.
        branch = await ask_for("And now?", previous_response_id=answer.id)
        assert prompt_of(branch)[1] >= known - 1


async def test_a_call_and_its_result_are_found_in_the_cache(settings: Settings) -> None:
    async with serving(settings) as served:
        fields: dict[str, Any] = {"tools": [TOOL], "tool_choice": "required", "max_output_tokens": 40}
        first = await turn(served, SEA, **fields)
        calls: list[Any] = [item for item in first.output if item.type == "function_call"]
        assert calls
        results = [{"type": "function_call_output", "call_id": call.call_id, "output": SEA} for call in calls]
        second = await turn(served, results, previous_response_id=first.id, **fields)
        assert prompt_of(second)[1] >= 0.95 * prompt_of(first)[0]


async def test_a_conversation_loses_its_oldest_turns_where_it_must(settings: Settings) -> None:
    async with serving(attrs.evolve(settings, max_context=256)) as served:
        conversation = await ask(served, lambda client: client.conversations.create())
        answers = [await turn(served, f"{i}: {SEA}", conversation=conversation.id) for i in range(6)]
        assert all(answer.truncation == "auto" for answer in answers)
        dropped: list[Any] = [answer.to_dict().get("dropped_messages", 0) for answer in answers]
        assert dropped[0] == 0 < dropped[-1]
        assert all(prompt_of(answer)[0] < 256 for answer in answers)
        stored = await ask(served, lambda client: client.responses.retrieve(answers[-1].id))
        assert stored.to_dict() == answers[-1].to_dict()
        with pytest.raises(openai.BadRequestError) as error:
            await turn(served, "And now?", conversation=conversation.id, truncation="disabled")
        assert error.value.code == "context_length_exceeded"
        items = await ask(
            served, lambda client: list(client.conversations.items.list(conversation.id, limit=100))
        )
        assert len(items) == 12


async def test_instructions_are_not_inherited(settings: Settings) -> None:
    async with serving(settings) as served:
        plain = await turn(served, "Hi")
        pirate = await turn(served, "Hi", instructions="Speak like a pirate, always, to everybody.")
        after = [await turn(served, "And?", previous_response_id=answer.id) for answer in (plain, pirate)]
        # The instructions are not part of the history: each prompt is as long as its visible messages.
        assert [answer.instructions for answer in after] == [None, None]
        for answer, parent in zip(after, (plain, pirate), strict=True):
            said: list[Any] = [{"role": "user", "content": "Hi"}, *(item.to_dict() for item in parent.output)]
            counted = await ask(
                served,
                partial(
                    lambda items, client: client.responses.input_tokens.count(model="qwen3", input=items),
                    [*said, {"role": "user", "content": "And?"}],
                ),
            )
            assert prompt_of(answer)[0] == counted.input_tokens


async def test_a_conversation_deleted_in_the_middle_of_a_turn_leaves_nothing(
    settings: Settings,
) -> None:
    hi: Any = {"role": "user", "content": "Hi"}
    engines = WatchedEngines(settings, stops=True)
    async with serving(settings, engines=engines) as served:

        def stream(client: openai.OpenAI) -> tuple[str, Any]:
            made = client.conversations.create(items=[hi])
            events = client.responses.create(
                model="qwen3",
                input="Go on",
                conversation=made.id,
                stream=True,
                max_output_tokens=60,
                temperature=0,
            )
            first = next(iter(events))
            wait_until(lambda: engines.stand)
            client.conversations.delete(made.id)
            assert engines.engine is not None
            engines.engine.go_on.set()
            *_, last = [first, *events]
            with pytest.raises(openai.NotFoundError):
                client.conversations.items.list(made.id)
            return made.id, last

        conversation, last = await ask(served, stream)
        assert last.type == "response.failed"
        with pytest.raises(openai.NotFoundError):
            await turn(served, "And now?", conversation=conversation)

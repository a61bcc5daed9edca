"""Counting the tokens of prompts without loading the model's weights."""

from __future__ import annotations

import attrs
import pytest
import trio
import trio.testing

from greenroom.actors.core.ref import Ref
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.pool.tickets import Found
from greenroom.actors.requests.prompt_queries import count_prompt_tokens
from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Admitted, Failed
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.pool_protocol import Drain, Drained, PoolMessage, QueryPrompt
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    chat,
    generate,
    state,
    until,
)


async def query_prompt(pool: Ref[PoolMessage], replies: ReplyStream[Found | Failed]) -> Found | Failed:
    await pool.stream(QueryPrompt(ModelKey("qwen3")), replies)
    return await replies.receive()


async def refusal(pool: Ref[PoolMessage], request: InferenceRequest) -> str:
    with pytest.raises(ProblemError) as refused:
        await count_prompt_tokens(pool, request)
    return refused.value.problem.code


async def test_a_prompt_is_counted_as_it_is_admitted_and_nothing_is_loaded(settings: Settings) -> None:
    faults = Faults()
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        counted = await count_prompt_tokens(system.pool, chat("qwen3"))
        assert faults.loads == []
        assert await state(system.pool, "qwen3") is ModelState.IDLE
        with generate(system.pool, "qwen3") as generation:
            events = await until(generation, Admitted)
        assert events[-1] == Admitted(counted)


async def test_what_cannot_be_counted_is_refused_as_the_request_would_be(settings: Settings) -> None:
    async with open_system(attrs.evolve(settings, max_context=16)) as system:
        long = await refusal(system.pool, chat("qwen3", prompt="word " * 50))
        unknown = await refusal(system.pool, chat("nobody"))
        await system.pool.ask(Drain(), Drained)
        late = await refusal(system.pool, chat("qwen3"))
    assert [long, unknown, late] == ["context_length_exceeded", "model_not_found", "draining"]


async def test_those_who_consult_a_model_are_limited_and_leave_no_trace(settings: Settings) -> None:
    async with open_system(attrs.evolve(settings, max_batch=1, max_queue=1)) as system:
        with ReplyStream[Found | Failed]() as first, ReplyStream[Found | Failed]() as second:
            assert isinstance(await query_prompt(system.pool, first), Found)
            assert isinstance(await query_prompt(system.pool, second), Found)
            with ReplyStream[Found | Failed]() as third:
                refused = await query_prompt(system.pool, third)
            assert isinstance(refused, Failed)
            assert refused.problem.code == "queue_full"
        with ReplyStream[Found | Failed]() as again:
            assert isinstance(await query_prompt(system.pool, again), Found)
            drained = trio.Event()

            async def drain() -> None:
                await system.pool.ask(Drain(), Drained)
                drained.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(drain)
                await trio.testing.wait_all_tasks_blocked()
                assert not drained.is_set()
                again.close()
        assert drained.is_set()

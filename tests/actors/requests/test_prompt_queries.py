"""Counting the tokens of prompts without loading the model's weights."""

from __future__ import annotations

import threading
from functools import partial

import attrs
import pytest
import trio
import trio.testing

from greenroom.actors.core.ref import Ref
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.pool.lease_queue import Found
from greenroom.actors.requests.prompt_queries import count_prompt_tokens
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Admitted, Failed, Finished, TextDelta
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.pool_protocol import Drain, Drained, PoolMessage, QueryPrompt
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    answer,
    chat,
    eventually,
    generate,
    state,
    until,
)
from greenroom.tests.support.actors.held_loads import waiting_for_load
from greenroom.tests.support.models.load_sizes import needs


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


SHORT = (("llama", ModelSettings(max_context=64)),)


async def follows_the_settings(system: System) -> bool:
    _, end = await answer(system.pool, "llama", prompt="word " * 100)
    return isinstance(end, Failed) and end.problem.code == "context_length_exceeded"


async def test_a_model_that_waits_for_memory_is_opened_anew_and_keeps_its_requests(
    models: tuple[str, ...],
) -> None:
    room = max(map(needs, models[:2])) * 3 // 2
    settings = Settings(models=models[:2], memory_bytes=room, shutdown_timeout=60.0)
    faults, ends = Faults(), list[Finished | Failed]()
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:

        async def ask() -> None:
            ends.append((await answer(system.pool, "llama"))[1])

        async def waits() -> bool:
            return await state(system.pool, "llama") is ModelState.WAITING

        async with trio.open_nursery() as nursery:
            with generate(system.pool, "qwen3", max_tokens=20_000) as running:
                await until(running, TextDelta)
                nursery.start_soon(ask)
                await eventually(waits)
                assert await system.reload(attrs.evolve(settings, model_settings=SHORT)) == ("llama",)
                assert isinstance((await until(running, TextDelta))[-1], TextDelta)
        assert [type(end) for end in ends] == [Finished]
        assert await follows_the_settings(system)
        assert faults.loads == ["qwen3", "llama"]


@pytest.mark.parametrize("changes", [1, 5])
async def test_settings_that_change_while_files_are_opened_hold_for_the_load(
    models: tuple[str, ...], changes: int
) -> None:
    settings, faults = Settings(models=models[:2], shutdown_timeout=60.0), Faults(hang_open=True)
    ends = list[Finished | Failed]()
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:

        async def ask() -> None:
            ends.append((await answer(system.pool, "llama"))[1])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.to_thread.run_sync(faults.hangs.wait)
            faults.hang_open = False
            for change in range(changes):
                table = SHORT if change % 2 == 0 else ()
                assert await system.reload(attrs.evolve(settings, model_settings=table)) == ("llama",)
            faults.release.set()
        assert [type(end) for end in ends] == [Finished]
        await eventually(partial(follows_the_settings, system))
        assert {*faults.loads} == {"llama"}


async def test_settings_that_change_during_a_load_hold_after_the_requests_that_wait_for_it(
    models: tuple[str, ...],
) -> None:
    settings, faults = Settings(models=models[:2], shutdown_timeout=60.0), Faults(gate=threading.Event())
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        async with waiting_for_load(system, faults, "llama") as ends:
            assert await system.reload(attrs.evolve(settings, model_settings=SHORT)) == ("llama",)
        assert [type(end) for end in ends] == [Finished]
        # However soon after the unload the next request comes.
        await eventually(partial(follows_the_settings, system))

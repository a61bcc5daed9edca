"""Messages of a model actor, sent directly instead of through a generation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.core.worker import Workers
from greenroom.actors.engines.engines import Engines
from greenroom.actors.model.model import ImpossibleTransition, Lifecycle, Model
from greenroom.actors.model.running_requests import Preparation
from greenroom.actors.pool.lease_queue import Found, Granted, Lease
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Admitted, Failed, Finished, InferenceEvent, TextDelta
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import TRANSITIONS, ModelState
from greenroom.schemas.protocols.model_protocol import (
    Generate,
    LoadFailed,
    ModelMessage,
    ModelReport,
    Prepare,
    Stop,
)
from greenroom.schemas.protocols.pool_protocol import Acquire
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import answer, chat, count_objects, eventually


async def find(system: System, model: str = "qwen3") -> Ref[ModelMessage]:
    found = await system.pool.ask(Acquire(ModelKey(model)), Found)
    assert isinstance(found, Found)
    return found.model


async def acquire(system: System, model: str = "qwen3") -> Lease:
    granted = await system.pool.ask(Acquire(ModelKey(model)), Granted)
    assert isinstance(granted, Granted)
    return granted.lease


async def text_of(replies: ReplyStream[InferenceEvent]) -> str:
    events = [event async for event in replies]
    assert isinstance(events[-1], Finished), events[-1]
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def first_answer(replies: ReplyStream[Any]) -> Any:
    return await replies.receive()


async def test_counting_the_tokens_of_a_prompt_needs_one_message(settings: Settings) -> None:
    async with open_system(settings) as system:
        prepared = await (await find(system)).ask(Prepare(chat("qwen3")), Admitted)
        _, finished = await answer(system.pool, "qwen3")
        assert isinstance(prepared, Admitted)
        assert isinstance(finished, Finished)
        assert prepared.prompt_tokens == finished.usage.prompt


async def test_a_request_that_the_model_did_not_prepare_is_prepared_when_it_is_to_be_answered(
    settings: Settings,
) -> None:
    async with open_system(settings) as system:
        expected, _ = await answer(system.pool, "qwen3")
        with await acquire(system) as lease, await lease.model.stream(Generate(chat("qwen3"))) as replies:
            assert await text_of(replies) == expected
        impossible = chat("qwen3", prompt="word " * 40_000)
        with await acquire(system) as lease:
            failed = await lease.model.ask(Generate(impossible), Finished)
            assert isinstance(failed, Failed)
            assert failed.problem.code == "context_length_exceeded"


async def test_a_request_may_be_sent_to_be_answered_before_it_is_prepared(settings: Settings) -> None:
    async with open_system(settings) as system:
        expected, _ = await answer(system.pool, "qwen3")
        with await acquire(system) as lease, await lease.model.stream(Prepare(chat("qwen3"))) as replies:
            await lease.model.stream(Generate(chat("qwen3")), replies)
            events = [event async for event in replies]
            assert "".join(event.text for event in events if isinstance(event, TextDelta)) == expected


async def test_what_was_prepared_is_removed_when_its_owner_leaves(settings: Settings) -> None:
    others = count_objects(Preparation)
    async with open_system(settings) as system:
        await answer(system.pool, "qwen3")
        model = await find(system)

        async def leave(number: int) -> None:
            with await model.stream(Prepare(chat("qwen3", f"r{number % 3}"))) as replies:
                with trio.move_on_after(number * 0.0005):
                    await replies.receive()

        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(leave, number)

        async def removed() -> bool:
            return count_objects(Preparation) <= others

        await eventually(removed)


async def test_requests_of_the_same_id_keep_their_own_prompts_until_they_are_answered(
    settings: Settings,
) -> None:
    async with open_system(settings) as system:
        requests = [chat("qwen3", "same", prompt=prompt, max_tokens=20) for prompt in ("one", "two")]
        alone = [(await answer(system.pool, "qwen3", prompt=p, max_tokens=20))[0] for p in ("one", "two")]
        left, right = ReplyStream[InferenceEvent](), ReplyStream[InferenceEvent]()
        with await acquire(system) as lease, left, right:
            for request, replies in zip(requests, (left, right), strict=True):
                await lease.model.stream(Prepare(request), replies)
                assert isinstance(await first_answer(replies), Admitted)
            for request, replies in zip(reversed(requests), (right, left), strict=True):
                await lease.model.stream(Generate(request), replies)
            assert [await text_of(left), await text_of(right)] == alone


async def test_an_actor_that_begins_in_error_may_fail_once_more(settings: Settings) -> None:
    """An actor begins in error if it replaces one whose worker still occupies memory."""
    workers, reports = Workers(), list[ModelReport]()
    model = Model(
        ModelKey("gone"), Engines(settings), workers, reports.append, state=ModelState.ERROR, slots=1
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(model.run)
        failed = await model.ref.ask(Prepare(chat("gone")), Admitted)
        assert isinstance(failed, Failed)
        assert failed.problem.code == "model_not_found"
        assert reports == [LoadFailed(failed.problem)]
        model.send(Stop())
    assert await workers.close(60.0)


IDLE, DOWNLOADING, WAITING, LOADING, READY, UNLOADING, ERROR = ModelState


def test_states_follow_the_table_only() -> None:
    life = Lifecycle()
    for step in (WAITING, LOADING, DOWNLOADING, LOADING, READY, UNLOADING, IDLE):
        life.to(step)
    with pytest.raises(ImpossibleTransition, match="idle to ready"):
        life.to(READY)
    assert life.state is IDLE


def test_the_page_for_operators_shows_the_same_table() -> None:
    page = (Path(__file__).parents[3] / "notes" / "actors.md").read_text(encoding="utf-8")
    section = page.partition("## The life of a model\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    shown = {row[0].strip("`"): {name.strip(" `") for name in row[2].split(",")} for row in rows}
    assert shown == {str(state): set(map(str, after)) for state, after in TRANSITIONS.items()}

"""The log line of a request that ends early has all fields known at its last event."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import attrs
import pytest
import structlog
import trio

from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Admitted, Finished, PromptProgress, QueueStatus, TextDelta
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    answer,
    eventually,
    generate,
    state,
    until,
)
from greenroom.tests.support.engines.watched_engines import WatchedEngines

Lines = list[MutableMapping[str, Any]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    with structlog.testing.capture_logs() as logs:
        yield logs


async def last_line(lines: Lines, request_id: str) -> MutableMapping[str, Any]:
    """Wait for the log line that records the end of a request."""

    def ends() -> Lines:
        events = ("request finished", "request failed")
        return [line for line in lines if line["event"] in events and line["request_id"] == request_id]

    async def written() -> bool:
        return bool(ends())

    await eventually(written)
    (line,) = ends()
    return line


async def test_a_request_cancelled_while_it_generates_is_logged_with_its_usage(
    settings: Settings, lines: Lines
) -> None:
    async with open_system(settings) as system:
        with generate(system.pool, "qwen3", "gone", max_tokens=20_000) as gone:
            (admitted,) = (event for event in await until(gone, TextDelta) if isinstance(event, Admitted))
            await until(gone, TextDelta)
        line = await last_line(lines, "gone")
    assert (line["event"], line["reason"]) == ("request finished", "cancelled")
    assert line["prompt_tokens"] == admitted.prompt_tokens
    assert 2 <= line["generated_tokens"] < 20_000
    assert 0 < line["decode_seconds"] <= line["seconds"]
    assert line["prefill_seconds"] > 0
    assert line["queued_seconds"] > 0


async def test_choices_of_a_cancelled_request_are_counted_together(settings: Settings, lines: Lines) -> None:
    async with open_system(settings) as system:
        _, one = await answer(system.pool, "qwen3", n=3, max_tokens=5)
        assert isinstance(one, Finished)
        with generate(system.pool, "qwen3", "gone", n=3, max_tokens=20_000) as gone:
            await until(gone, TextDelta)
        line = await last_line(lines, "gone")
    assert line["generated_tokens"] >= 3
    assert line["prompt_tokens"] == one.usage.prompt


async def test_a_request_cancelled_while_its_prompt_is_computed_is_logged_with_its_timing(
    settings: Settings, lines: Lines
) -> None:
    engines = WatchedEngines(
        settings, stops=lambda event: isinstance(event, PromptProgress) and event.total > 1000
    )
    async with open_system(settings, engines=engines) as system:
        with (
            generate(system.pool, "qwen3", "neighbour", max_tokens=20_000) as neighbour,
            generate(system.pool, "qwen3", "gone", prompt="word " * 3000) as gone,
        ):
            await until(neighbour, TextDelta)
            progress = (await until(gone, PromptProgress))[-1]
            assert isinstance(progress, PromptProgress)
            assert progress.processed < progress.total
            gone.close()
            assert engines.engine is not None
            engines.engine.go_on.set()
            line = await last_line(lines, "gone")
    assert (line["event"], line["reason"]) == ("request finished", "cancelled")
    assert line["prompt_tokens"] == progress.total
    assert line["generated_tokens"] == 0
    assert line["prefill_seconds"] > 0
    assert line["decode_seconds"] == 0


async def test_a_request_cancelled_while_it_waits_for_a_slot_is_logged(
    settings: Settings, lines: Lines
) -> None:
    async with open_system(attrs.evolve(settings, max_batch=1)) as system:
        with (
            generate(system.pool, "qwen3", "running", max_tokens=20_000) as running,
            generate(system.pool, "qwen3", "gone") as gone,
        ):
            await until(running, TextDelta)
            await until(gone, Admitted)
            gone.close()
            line = await last_line(lines, "gone")
    assert (line["event"], line["reason"]) == ("request finished", "cancelled")
    assert line["generated_tokens"] == 0
    assert 0 < line["queued_seconds"] == line["seconds"]


async def test_a_slot_is_free_before_the_engine_has_said_its_last(settings: Settings, lines: Lines) -> None:
    async with open_system(attrs.evolve(settings, max_batch=1)) as system:
        with generate(system.pool, "qwen3", "gone", max_tokens=20_000) as gone:
            await until(gone, TextDelta)
        assert isinstance((await answer(system.pool, "qwen3", "next"))[1], Finished)
        assert (await last_line(lines, "gone"))["reason"] == "cancelled"


async def test_a_request_cancelled_just_before_its_model_is_unloaded_is_logged_with_its_usage(
    settings: Settings, lines: Lines
) -> None:
    """The worker receives both commands during one step."""
    settings, faults = attrs.evolve(settings, max_loaded_models=1), Faults(hang={"gone"})
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        try:
            with generate(system.pool, "qwen3", "gone", max_tokens=20_000) as gone:
                await until(gone, TextDelta)
                await trio.to_thread.run_sync(faults.hangs.wait)

            async def unloading() -> bool:
                return await state(system.pool, "qwen3") is ModelState.UNLOADING

            with generate(system.pool, "llama", "next") as following:
                await until(following, QueueStatus)
                await eventually(unloading)
                faults.release.set()
                line = await last_line(lines, "gone")
        finally:
            faults.release.set()
    assert (line["event"], line["reason"]) == ("request finished", "cancelled")
    assert line["generated_tokens"] >= 2
    assert line["decode_seconds"] > 0


async def test_a_request_that_a_crash_ends_is_logged_with_what_is_known(
    settings: Settings, lines: Lines
) -> None:
    faults = Faults(crash={"bad"})
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        await answer(system.pool, "qwen3", "bad", max_tokens=20_000)
        line = await last_line(lines, "bad")
    assert (line["event"], line["problem"]) == ("request failed", "model_crashed")
    assert line["prompt_tokens"] > 0
    assert line["queued_seconds"] > 0
    assert line["seconds"] > 0


async def test_a_request_that_the_shutdown_timeout_ends_is_logged_with_its_usage(
    settings: Settings, lines: Lines
) -> None:
    settings, faults = attrs.evolve(settings, shutdown_timeout=2.0), Faults(slow={"late": 0.05})
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        with generate(system.pool, "qwen3", "late", max_tokens=20_000) as late:
            await until(late, TextDelta)
            await system.drain()
            line = await last_line(lines, "late")
    assert (line["event"], line["problem"]) == ("request failed", "draining")
    assert line["generated_tokens"] >= 1
    assert line["decode_seconds"] > 0

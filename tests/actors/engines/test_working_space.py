"""The working space of a load: estimated, measured with a real model, remembered while nothing changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import structlog
import trio

from greenroom.actors.store.connection import Connection
from greenroom.actors.store.read_only import read_working_space
from greenroom.actors.store.tables import Tables
from greenroom.actors.system import System, open_system
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.load_size import LEAST_MEASURED, LoadSize, load_size
from greenroom.http.command_line import EngineModels
from greenroom.schemas.events.events import Finished, TextDelta
from greenroom.schemas.models.capabilities import WorkingSpace
from greenroom.schemas.protocols.model_protocol import Trimmed
from greenroom.schemas.protocols.pool_protocol import ModelUnloaded
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults
from greenroom.tests.actors.pool.test_replay import events_in
from greenroom.tests.actors.pool.test_residence import ForgottenEngines, unload
from greenroom.tests.support.actors.actor_systems import (
    answer,
    generate,
    generating,
    status,
    until,
)

MEGABYTE = 1 << 20


def size_of(folder: Path) -> LoadSize:
    return load_size(folder, detect(folder), Settings())


async def granted_bytes(system: System, name: str) -> int:
    """Return the bytes that the pool grants for a load, with which a request is then answered."""
    _, end = await answer(system.pool, name)
    assert isinstance(end, Finished), end
    return (await status(system.pool, name)).nbytes


async def test_what_a_load_took_replaces_the_estimate_until_the_files_change_even_after_a_restart(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder, database = tiny_model("qwen3"), tmp_path / "db"
    size = size_of(folder)
    settings = Settings(models=(str(folder),), db=str(database), shutdown_timeout=60.0)
    async with open_system(settings) as system:
        assert await granted_bytes(system, "qwen3") == size.total
        assert isinstance(await unload(system, "qwen3"), ModelUnloaded)
        again = await granted_bytes(system, "qwen3")
    assert again < size.total
    measured = await trio.to_thread.run_sync(read_working_space, database)
    assert [each.model_id for each in measured] == ["qwen3"]
    assert 0 < measured[0].nbytes < size.working
    assert again >= size.least + size.working // LEAST_MEASURED
    async with open_system(settings) as system:
        expected = size.least + max(measured[0].nbytes, size.working // LEAST_MEASURED)
        assert await granted_bytes(system, "qwen3") == expected
    [shown] = await trio.to_thread.run_sync(EngineModels().describe, settings, "qwen3")
    assert shown["required_bytes"] <= again  # as measured, like the server's own lists
    async with open_system(attrs.evolve(settings, max_batch=settings.max_batch + 1)) as system:
        assert await granted_bytes(system, "qwen3") >= size.total
    os.utime(folder / "config.json")
    async with open_system(settings) as system:
        assert await granted_bytes(system, "qwen3") == size.total


def test_a_measurement_replaces_the_last_and_what_is_no_measurement_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with closing(Connection(str(path))) as connection:
        for measured in (WorkingSpace("a", 5, "x"), WorkingSpace("b", 6, "y"), WorkingSpace("a", 7, "z")):
            Tables(connection, "boot").working_space.save(measured)
        assert read_working_space(path) == (WorkingSpace("a", 7, "z"), WorkingSpace("b", 6, "y"))
        with connection.transaction():
            connection.write("update greenroom_working_space set nbytes = 'many' where model_id = 'a'")
    assert read_working_space(path) == (WorkingSpace("b", 6, "y"),)
    assert read_working_space(tmp_path / "none") == ()


async def test_weights_of_40_mb_load_in_64_mb_though_the_estimate_exceeds_that(
    tiny_model: Callable[..., Path],
) -> None:
    folder = tiny_model("qwen3", hidden_size=128, intermediate_size=12_288)
    size, limit = size_of(folder), 64 * MEGABYTE
    assert 36 * MEGABYTE < size.weights < 44 * MEGABYTE
    assert size.least < limit < size.total
    settings = Settings(models=(str(folder),), memory_bytes=limit, shutdown_timeout=60.0)
    async with open_system(settings) as system:
        assert await granted_bytes(system, folder.name) == limit


@pytest.mark.deep
async def test_a_busy_model_releases_the_caches_that_it_says_it_has_released(
    tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs leave no memory until the caches are gone, and the busy model cannot be unloaded."""
    models = [tiny_model(kind, max_position_embeddings=16_384) for kind in ("qwen3", "llama")]
    busy, other = (model.name for model in models)
    settings = Settings(models=tuple(map(str, models)), shutdown_timeout=60.0)
    engines, pressed, cached = ForgottenEngines(settings, Faults()), trio.Event(), list[int]()

    def available() -> int | None:
        account = engines.held.account
        if account is None or not pressed.is_set():
            return None
        cached.append(account.statistics().cached)
        return 0 if cached[-1] > MEGABYTE else None

    monkeypatch.setattr(engines, "available_memory", available)
    with structlog.testing.capture_logs() as logs:
        async with open_system(settings, engines=engines) as system:
            text = " ".join(f"word{number}" for number in range(600))
            assert isinstance((await answer(system.pool, busy, prompt=text))[1], Finished)
            with generate(system.pool, busy, "long", max_tokens=15_000) as running:
                await until(running, TextDelta)
                await generating(system.pool, busy, 1)
                pressed.set()
                assert isinstance((await answer(system.pool, other))[1], Finished)
    reports = [event.report for event in events_in(logs) if hasattr(event, "report")]
    [freed] = [report.freed for report in reports if isinstance(report, Trimmed)]
    assert max(cached) > 2 * MEGABYTE
    assert freed >= 0.9 * (max(cached) - cached[-1])

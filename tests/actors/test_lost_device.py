"""Device and model errors: some cost a thread, others end the whole process."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx
import pytest
import structlog
import trio

from greenroom.actors.core.worker_thread import MAX_REPLACED, MAX_REPLACED_FOR_CODE
from greenroom.actors.pool.residence_rules import RestartIntensity
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Admitted, Failed, Finished, TextDelta
from greenroom.schemas.problems import ProblemError, load_failed
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    answer,
    generate,
    until,
)
from greenroom.tests.support.models.tiny_models import TinyModel

FAILED = "[METAL] Command buffer execution failed: "
IGNORED = f"{FAILED}Ignored (00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)"
TIMED_OUT = f"{FAILED}Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)"


@asynccontextmanager
async def faulty(settings: Settings, faults: Faults) -> AsyncIterator[System]:
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        yield system


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the pause after a model's repeated failures."""
    monkeypatch.setattr(RestartIntensity, "seconds_left", lambda *_: 0.0)


async def code_of(system: System, model: str, request_id: str = "r", **overrides: object) -> str:
    _, failed = await answer(system.pool, model, request_id, **overrides)
    assert isinstance(failed, Failed), failed
    return failed.problem.code


async def refusal_of(system: System) -> str | None:
    described = await system.pool.ask(DescribePool(), PoolStatus)
    assert isinstance(described, PoolStatus)
    return None if described.draining is None else described.draining.detail


async def test_an_error_of_the_device_costs_its_thread_and_the_model_goes_on_with_another(
    settings: Settings,
) -> None:
    async with faulty(settings, Faults(crash={"bad"}, error=TIMED_OUT)) as system:
        whole, _ = await answer(system.pool, "qwen3", "alone")
        assert await code_of(system, "qwen3", "bad", max_tokens=200) == "model_crashed"
        assert (await answer(system.pool, "qwen3", "next"))[0] == whole
        assert system.statistics().replaced == 1
        assert await refusal_of(system) is None
    assert not system.hung


@pytest.mark.deep
async def test_once_the_device_is_lost_what_answers_goes_on_and_all_else_is_told(settings: Settings) -> None:
    settings = attrs.evolve(settings, max_batch=1)
    with structlog.testing.capture_logs() as logs:
        async with faulty(settings, Faults(crash={"bad"}, error=IGNORED)) as system:
            with (
                generate(system.pool, "llama", "other", max_tokens=2000) as other,
                generate(system.pool, "qwen3", "bad", max_tokens=2000) as bad,
                generate(system.pool, "qwen3", "waits") as waits,
            ):
                await until(other, TextDelta)
                await until(bad, Admitted)
                ends = [[event async for event in generation][-1] for generation in (bad, waits)]
                codes = [end.problem.code for end in ends if isinstance(end, Failed)]
                assert codes == ["model_crashed", "device_lost"]
                assert await code_of(system, "llama", "late") == "device_lost"
                assert isinstance([event async for event in other][-1], Finished)
            assert "has to be started again" in (await refusal_of(system) or "")
            assert system.device_lost.is_set()
            assert system.seconds_to_end == 5.0
            with trio.fail_after(300):
                await system.drain()
    assert [entry["log_level"] for entry in logs if entry["event"] == "device lost"] == ["error"]
    assert not system.hung


async def test_an_error_of_the_device_that_is_still_to_come_behind_a_crash_of_code_counts(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending: list[str] = []
    wait = mx.synchronize

    def synchronize(*arguments: Any) -> None:
        wait(*arguments)
        if pending:
            raise RuntimeError(pending.pop())

    monkeypatch.setattr(mx, "synchronize", synchronize)
    faults = Faults()
    async with faulty(settings, faults) as system:
        with generate(system.pool, "qwen3", "bad", max_tokens=20_000) as bad:
            await until(bad, TextDelta)
            pending.append(IGNORED)
            faults.crash.add("bad")
            with trio.fail_after(300):
                await system.device_lost.wait()
    assert not pending


async def test_two_fresh_threads_that_die_of_the_device_while_they_load_end_the_process(
    settings: Settings,
) -> None:
    wrapped = ProblemError(load_failed("qwen3", "it failed."))
    wrapped.__cause__ = RuntimeError(TIMED_OUT)
    faults = Faults(load={"qwen3": RuntimeError(TIMED_OUT), "llama": wrapped})
    async with faulty(settings, faults) as system:
        assert await code_of(system, "qwen3") == "load_failed"
        assert not system.device_lost.is_set()
        await code_of(system, "llama")
        with trio.fail_after(300):
            await system.device_lost.wait()


@pytest.mark.deep
@pytest.mark.usefixtures("impatient")
async def test_a_model_whose_code_crashes_on_and_on_ends_nothing_but_itself(settings: Settings) -> None:
    bad = {str(number) for number in range(MAX_REPLACED + 2)}
    async with faulty(settings, Faults(crash=bad)) as system:
        for name in sorted(bad):
            assert await code_of(system, "qwen3", name, max_tokens=200) == "model_crashed"
        assert system.statistics().replaced == MAX_REPLACED_FOR_CODE
        assert not system.device_lost.is_set()
        assert isinstance((await answer(system.pool, "llama"))[1], Finished)
        assert isinstance((await answer(system.pool, "qwen3", "fine"))[1], Finished)


@pytest.mark.usefixtures("impatient")
async def test_folders_that_cannot_be_loaded_cost_no_thread_however_often_they_are_asked_for(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    torn = shutil.copytree(tiny_model("qwen3"), tmp_path / "torn")
    weights = next(torn.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    vast = shutil.copytree(tiny_model("qwen3"), tmp_path / "vast")
    config = json.loads((vast / "config.json").read_text())
    (vast / "config.json").write_text(json.dumps({**config, "intermediate_size": 2**40}))
    models = tuple(map(str, (torn, vast, tiny_model("llama"))))
    async with open_system(Settings(models=models, shutdown_timeout=60.0)) as system:
        for _ in range(MAX_REPLACED // 2 + 1):
            for model in ("torn", "vast"):
                assert await code_of(system, model) in {"load_failed", "insufficient_memory"}
        assert system.statistics().replaced == 0
        assert not system.device_lost.is_set()
        assert isinstance((await answer(system.pool, "llama"))[1], Finished)

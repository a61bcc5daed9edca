"""Worker threads: their number and memory over many loads, and clean process exits after MLX ran on them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import mlx.core as mx
import psutil
import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from greenroom.actors.core.worker import JobCrashed, JobEnd, Workers, WorkerSilent, WorkersStatistics
from greenroom.actors.core.worker_thread import (
    MAX_REPLACED,
    SILENT_TICKS,
    STACK_BYTES,
    DeviceReport,
    Heartbeat,
    Purpose,
    Worker,
)
from greenroom.actors.system import open_system
from greenroom.engine.loading import devices
from greenroom.engine.resources.device_errors import Crash
from greenroom.schemas.events.events import Finished
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Panic
from greenroom.tests.support.actors.actor_systems import (
    answer,
)
from greenroom.tests.support.engines.schedules import deep_only

TinyModel = Callable[..., Path]

CYCLES = """
import psutil, sys, trio
from greenroom.actors.system import open_system
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import answer

async def main():
    settings = Settings(models=tuple(sys.argv[2:]), max_loaded_models=1, shutdown_timeout=60.0)
    process = psutil.Process()
    async with open_system(settings) as system:
        for cycle in range(int(sys.argv[1])):
            for model in ("qwen3", "llama"):
                await answer(system.pool, model)
            print("cycle", process.num_threads(), process.memory_info().rss, flush=True)
    sys.exit(1 if system.hung else 0)

trio.run(main)
"""

ENDS = """
import sys, trio
from greenroom.actors.system import open_system
from greenroom.schemas.events.events import TextDelta
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import answer, generate, until

async def main():
    async with open_system(Settings(models=tuple(sys.argv[2:]), shutdown_timeout=60.0)) as system:
        if sys.argv[1] == "after":
            for model in ("qwen3", "llama"):
                await answer(system.pool, model)
        else:
            with generate(system.pool, "qwen3", max_tokens=20_000) as generation:
                await until(generation, TextDelta)
                print("generating", flush=True)
                async for _ in generation:
                    pass

trio.run(main)
"""


@pytest.fixture
def models(tiny_model: TinyModel) -> list[str]:
    return [str(tiny_model("qwen3")), str(tiny_model("llama"))]


def purpose_of(purpose: Purpose, heartbeat: Heartbeat) -> str:
    heartbeat.beat()
    return purpose


async def test_threads_are_lent_again_for_the_same_purpose() -> None:
    workers, results = Workers(), list[str]()
    purposes: tuple[Purpose, ...] = ("gpu", "tokenizer", "gpu")
    for purpose in purposes:
        done = trio.Event()

        def finish(result: object, done: trio.Event = done) -> None:
            results.append(str(result))
            done.set()

        lent = workers.lend(purpose, partial(purpose_of, purpose), finish)
        results.append(lent.name)
        await done.wait()
    assert results == [
        "greenroom-gpu-1",
        "gpu",
        "greenroom-tokenizer-2",
        "tokenizer",
        "greenroom-gpu-1",
        "gpu",
    ]
    assert await workers.close(5.0)


@pytest.fixture
def clock() -> MockClock:
    """Return a clock that moves only when the test jumps it."""
    return MockClock()


async def test_a_silent_thread_is_quarantined_whatever_it_is_for_and_a_process_that_was_stopped_has_none(
    clock: MockClock,
) -> None:
    workers, release, reports = Workers(hang_timeout=80.0), threading.Event(), list[object]()
    purposes: tuple[Purpose, ...] = ("gpu", "tokenizer")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(workers.watch)
        for purpose in purposes:
            workers.lend(purpose, lambda _: release.wait(), reports.append, "m")
        await wait_all_tasks_blocked()
        for seconds in (1_000, *(10,) * (SILENT_TICKS - 1)):
            clock.jump(seconds)
            await wait_all_tasks_blocked()
            assert not reports
        clock.jump(10)
        await wait_all_tasks_blocked()
        assert reports == [WorkerSilent(80.0)] * 2
        assert workers.hung() == {"m": 2}
        assert workers.hung("gpu") == {"m": 1}
        release.set()
        while len(reports) < 4:
            await trio.lowlevel.checkpoint()
        assert reports[2:] == [True, True]
        assert workers.hung() == {}
        nursery.cancel_scope.cancel()
    assert await workers.close(5.0)


@pytest.mark.parametrize(("device", "seconds"), [("cpu", 600.0), ("gpu", 120.0), (None, 120.0)])
async def test_a_model_may_be_silent_for_longer_where_it_computes_on_a_cpu(
    clock: MockClock, monkeypatch: pytest.MonkeyPatch, device: str | None, seconds: float
) -> None:
    monkeypatch.setattr(devices, "_device", device)
    workers, release = Workers(), threading.Event()
    reports: dict[str, list[object]] = {"gpu": [], "tokenizer": []}
    purposes: tuple[Purpose, ...] = ("gpu", "tokenizer")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(workers.watch)
        for purpose in purposes:
            workers.lend(purpose, lambda _: release.wait(), reports[purpose].append, "m")
        await wait_all_tasks_blocked()
        silent = dict.fromkeys(purposes, 0.0)
        for _ in range(round(seconds / 15) + 1):
            clock.jump(15)
            await wait_all_tasks_blocked()
            for purpose in purposes:
                silent[purpose] += 15 * (not reports[purpose])
        assert reports == {"gpu": [WorkerSilent(seconds)], "tokenizer": [WorkerSilent(120.0)]}
        assert silent == {"gpu": seconds, "tokenizer": 120.0}
        release.set()
        while any(len(each) < 2 for each in reports.values()):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert await workers.close(5.0)


async def run_job(
    workers: Workers, job: Callable[[Heartbeat], object], purpose: Purpose = "gpu"
) -> tuple[Worker, object]:
    """Run a job on a worker; return the worker and the reported result."""
    reported, done = list[object](), trio.Event()

    def report(result: object) -> None:
        reported.append(result)
        done.set()

    worker = workers.lend(purpose, job, report, "m")
    with trio.fail_after(300):
        await done.wait()
    [result] = reported
    return worker, result


@pytest.mark.parametrize("purpose", ["gpu", "tokenizer"])
async def test_a_job_that_raises_anything_is_told_of_and_its_thread_ends(purpose: Purpose) -> None:
    workers = Workers()
    errors: tuple[BaseException, ...] = (SystemExit(3), KeyboardInterrupt(), Panic("native"))
    names = set[str]()
    for error in errors:
        worker, result = await run_job(workers, partial(raise_it, error), purpose)
        device = DeviceReport(Crash.CODE)
        assert result == JobCrashed(f"{type(error).__name__}: {error}", device=device)
        names.add(worker.name)
        with trio.fail_after(300):
            await worker.ended.wait()
    assert len(names) == len(errors)
    # A thread that has not used MLX leaks nothing, so it does not count as replaced.
    assert workers.statistics().replaced == (len(errors) if purpose == "gpu" else 0)
    assert await workers.close(5.0)


@pytest.mark.parametrize("crash", [Crash.CODE, Crash.MEMORY, Crash.DEVICE])
async def test_after_a_crash_of_which_its_end_tells_the_next_loan_has_another_thread(crash: Crash) -> None:
    workers = Workers()
    crashed, _ = await run_job(workers, lambda _: JobEnd(device=DeviceReport(crash)))
    following, _ = await run_job(workers, lambda _: JobEnd())
    again, _ = await run_job(workers, lambda _: JobEnd())
    assert following is not crashed
    assert again is following
    with trio.fail_after(300):
        await crashed.ended.wait()
    assert not workers.device_lost.is_set()
    assert await workers.close(5.0)


async def test_sixteen_threads_are_replaced_and_with_the_next_one_the_device_is_lost() -> None:
    workers = Workers()
    dying = JobEnd(device=DeviceReport(Crash.DEVICE, computed=True))
    with structlog.testing.capture_logs() as logs:
        for number in range(MAX_REPLACED):
            await run_job(workers, lambda _: dying)
            assert workers.statistics() == WorkersStatistics(0, 0, 0, replaced=number + 1)
        assert not workers.device_lost.is_set()
        for _ in range(2):
            await run_job(workers, lambda _: dying)
            assert workers.device_lost.is_set()
    [lost] = [entry for entry in logs if entry["event"] == "device lost"]
    assert str(MAX_REPLACED) in lost["reason"] == workers.loss
    assert workers.statistics().replaced == MAX_REPLACED
    assert await workers.close(5.0)


async def test_a_thread_that_was_silent_and_comes_back_with_a_refusal_tells_of_the_lost_device() -> None:
    workers, release, done = Workers(), threading.Event(), trio.Event()

    def job(_: Heartbeat) -> JobEnd:
        release.wait()
        return JobEnd(device=DeviceReport(Crash.REFUSED))

    worker = workers.lend("gpu", job, lambda _: done.set())
    workers.quarantine(worker)
    release.set()
    with trio.fail_after(300):
        await done.wait()
    assert workers.device_lost.is_set()
    assert await workers.close(5.0)


async def test_a_thread_whose_streams_cannot_be_cleared_ends_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def clear_streams() -> None:
        raise RuntimeError("[METAL] Command buffer execution failed: Ignored")

    workers = Workers()
    monkeypatch.setattr(mx, "clear_streams", clear_streams)
    with structlog.testing.capture_logs() as logs:
        await run_job(workers, lambda _: JobEnd(device=DeviceReport(Crash.DEVICE)))
        assert await workers.close(5.0)
    assert "streams not cleared" in [entry["event"] for entry in logs]


def raise_it(error: BaseException, heartbeat: Heartbeat) -> None:
    heartbeat.beat()
    raise error


async def test_a_thread_that_does_not_end_is_told_of_and_not_waited_for() -> None:
    workers, release = Workers(), threading.Event()
    stuck = workers.lend("tokenizer", lambda _: release.wait(), lambda _: None)
    quarantined = workers.lend("gpu", lambda _: release.wait(), lambda _: None)
    workers.quarantine(quarantined)
    assert workers.statistics() == WorkersStatistics(lent=1, idle=0, quarantined=1, working=1)
    with trio.fail_after(300):
        assert not await workers.close(0.1)
    release.set()
    with trio.fail_after(300):
        await stuck.ended.wait()
        await quarantined.ended.wait()
    assert workers.statistics().idle == 1


STACK = """
import ctypes, sys, threading, trio
from greenroom.actors.core.worker import Workers

def stack_bytes(_):
    c = ctypes.CDLL(None)
    c.pthread_self.restype = ctypes.c_void_p
    own = ctypes.c_void_p(c.pthread_self())
    if sys.platform == "darwin":
        c.pthread_get_stacksize_np.restype = ctypes.c_size_t
        return c.pthread_get_stacksize_np(own)
    attributes, size = ctypes.create_string_buffer(256), ctypes.c_size_t()
    assert c.pthread_getattr_np(own, attributes) == 0
    assert c.pthread_attr_getstacksize(attributes, ctypes.byref(size)) == 0
    return size.value

async def main():
    usual, done, found = threading.stack_size(), trio.Event(), []
    workers = Workers()
    for purpose in ("gpu", "tokenizer"):
        done = trio.Event()
        workers.lend(purpose, stack_bytes, lambda size: (found.append(size), done.set()))
        await done.wait()
    await workers.close(5.0)
    print(*found, usual == threading.stack_size())

trio.run(main)
"""


def test_workers_have_stacks_on_which_native_code_may_recurse() -> None:
    # By default, threads have a stack of 512 kB on macOS.
    ended = subprocess.run([sys.executable, "-c", STACK], capture_output=True, text=True, check=True)
    *sizes, others_are_as_before = ended.stdout.split()
    assert min(map(int, sizes)) >= STACK_BYTES
    assert others_are_as_before == "True"


@pytest.mark.deep
async def test_loads_and_unloads_make_no_new_threads(models: list[str]) -> None:
    counts: list[int] = []
    async with open_system(
        Settings(models=tuple(models), max_loaded_models=1, shutdown_timeout=60.0)
    ) as system:
        for _ in range(10):
            for name in ("qwen3", "llama"):
                assert isinstance((await answer(system.pool, name))[1], Finished)
            counts.append(psutil.Process().num_threads())
    # Trio's own cached threads, started for the first lookups, may have ended by now.
    assert max(counts[3:]) <= counts[2]


def run(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / ".src")},
    )


@pytest.mark.deep
@pytest.mark.parametrize("moment", ["amid", *deep_only("after")])
def test_a_process_ends_cleanly_after_and_amid_generating(models: list[str], moment: str) -> None:
    end_cleanly(models, moment)


@pytest.mark.soak
@pytest.mark.parametrize("moment", ["after", "amid"])
def test_ten_processes_end_cleanly(models: list[str], moment: str) -> None:
    for _ in range(10):
        end_cleanly(models, moment)


def end_cleanly(models: list[str], moment: str) -> None:
    with run(ENDS, moment, *models) as process:
        assert process.stdout is not None
        if moment == "amid":
            while process.stdout.readline() != "generating\n":
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
        process.stdout.read()
        # An abort would return -6 or -11; a KeyboardInterrupt leaves the system as itself.
        assert process.wait(300) == (0 if moment == "after" else -signal.SIGINT)


@pytest.mark.soak
def test_a_hundred_loads_and_unloads_take_no_threads_and_no_memory(models: list[str]) -> None:
    with run(CYCLES, "100", *models) as process:
        assert process.stdout is not None
        measured = [tuple(map(int, line.split()[1:])) for line in process.stdout if line.startswith("cycle ")]
        assert process.wait(300) == 0
    threads, memory = zip(*measured, strict=True)
    assert len(threads) == 100
    assert max(threads[10:]) <= max(threads[5:10]) + 2  # one may begin before another has ended
    assert memory[99] <= memory[49] * 1.02, memory


@pytest.mark.soak
async def test_two_hundred_streams_of_which_half_hang_up_leave_nothing(models: list[str]) -> None:
    from greenroom.schemas.events.events import TextDelta
    from greenroom.tests.support.actors.actor_systems import eventually, generate, status, until

    process = psutil.Process()
    async with open_system(Settings(models=tuple(models), max_batch=16, shutdown_timeout=60.0)) as system:

        async def one(number: int) -> None:
            with generate(system.pool, "qwen3", str(number), max_tokens=40) as generation:
                await until(generation, TextDelta if number % 2 else Finished)

        async def many(count: int) -> None:
            async with trio.open_nursery() as nursery:
                for number in range(count):
                    nursery.start_soon(one, number)

        for _ in range(3):  # afterwards the size of MLX's buffer cache fluctuates but no longer grows
            await many(200)
        gc.collect()
        threads, memory = process.num_threads(), process.memory_info().rss
        for _ in range(4):
            await many(200)
        gc.collect()

        async def nothing_is_left() -> bool:
            described = await status(system.pool, "qwen3")
            return described.running == described.waiting == 0

        await eventually(nothing_is_left)
        assert process.num_threads() <= threads + 8  # idle ones end after seconds, and others begin
        assert (process.memory_info().rss - memory) / 800 < 10_000


IDLE = """
import sys, trio
from greenroom.actors.system import open_system
from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions
from greenroom.schemas.settings.settings import Settings

async def main():
    async with open_system(Settings(models=tuple(sys.argv[1:]))) as system:
        await system.pool.ask(DescribeModel(), ModelDescriptions)
    heavy = {"mlx", "mlx_lm", "transformers", "numpy", "tokenizers", "huggingface_hub"} & set(sys.modules)
    sys.exit(", ".join(sorted(heavy)) or 0)

trio.run(main)
"""


def test_a_system_that_loads_nothing_imports_no_model_library(models: list[str]) -> None:
    with run(IDLE, *models) as process:
        assert process.wait(300) == 0

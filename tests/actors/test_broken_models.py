"""Models with broken or missing files: they are not read again until the files change."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from greenroom.actors.core.ref import ask_actor
from greenroom.actors.engines.engines import BrokenModels, Engines
from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Failed, Finished
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem, ProblemError, load_failed
from greenroom.schemas.protocols.pool_protocol import ModelUnloaded, UnloadModel
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import answer

UNTRIED = "not tried again until its files change"


async def problem_of(system: object, model: str) -> Problem:
    _, failed = await answer(system.pool, model)  # type: ignore[attr-defined]
    assert isinstance(failed, Failed)
    return failed.problem


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
async def test_a_broken_file_is_not_read_again_until_it_changes(
    tiny_model: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(tiny_model("qwen3"), folder)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])
    settings = Settings(models=(str(folder), str(tiny_model("llama"))), shutdown_timeout=60.0)
    async with open_system(settings) as system:
        for attempt in range(5):  # more than the failures after which a model is left alone
            problem = await problem_of(system, "broken")
            assert (problem.status, problem.code) == (503, "load_failed")
            assert (UNTRIED in problem.detail) == (attempt > 0), problem.detail
        assert isinstance((await answer(system.pool, "llama"))[1], Finished)
        (folder / name).write_bytes(whole)
        assert isinstance((await answer(system.pool, "broken"))[1], Finished)


async def test_a_missing_model_is_served_once_its_files_have_arrived(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tmp_path / "late"
    folder.mkdir()
    async with open_system(Settings(models=(str(folder),), shutdown_timeout=60.0)) as system:
        for _ in range(4):
            assert (await problem_of(system, "late")).code == "load_failed"
        shutil.copytree(tiny_model("qwen3"), folder, dirs_exist_ok=True)
        assert isinstance((await answer(system.pool, "late"))[1], Finished)


def test_only_what_files_cause_is_remembered(tmp_path: Path) -> None:
    known = BrokenModels()
    (tmp_path / "weights").write_bytes(b"broken")
    tried = 0

    def attempt(problem: Problem) -> Problem:
        nonlocal tried
        try:
            with known.watched("m", tmp_path):
                tried += 1
                raise ProblemError(problem)
        except ProblemError as error:
            return error.problem

    passing, lasting = load_failed("m", "the disk is busy."), load_failed("m", "torn.", lasting=True)
    assert [attempt(passing), attempt(passing), attempt(lasting)] == [passing, passing, lasting]
    assert UNTRIED in attempt(lasting).detail
    assert tried == 3
    os.utime(tmp_path / "weights", (0, 0))
    assert attempt(lasting) == lasting
    assert tried == 4


@pytest.mark.parametrize("loaded", [False, True])
async def test_a_model_whose_folder_is_deleted_does_not_exist_and_leaves_no_memory(
    tiny_model: Callable[..., Path], tmp_path: Path, loaded: bool
) -> None:
    gone, named = tmp_path / "models" / "gone", tmp_path / "named"
    for folder in (gone, named):
        shutil.copytree(tiny_model("qwen3"), folder)
    settings = Settings(models=(str(named),), model_dir=(str(gone.parent),), shutdown_timeout=60.0)
    engines = Engines(settings)
    async with open_system(settings, engines=engines) as system:
        assert isinstance((await answer(system.pool, "named"))[1], Finished)
        if loaded:
            _, end = await answer(system.pool, "gone", prompt=" ".join(map(str, range(200))))
            assert isinstance(end, Finished)
            keeping = UnloadModel(ModelKey("gone"), keeps_prefixes=True)
            await ask_actor(system.pool, keeping, ModelUnloaded)
            assert engines.held.nbytes() > 0
        assert not isinstance(await trio.to_thread.run_sync(engines.describe, None), Problem)  # a fresh look
        shutil.rmtree(gone)
        problem = await problem_of(system, "gone")
        assert (problem.status, problem.code) == (404, "model_not_found")
        assert engines.held.nbytes() == 0
        await ask_actor(system.pool, UnloadModel(ModelKey("named")), ModelUnloaded)
        shutil.rmtree(named)
        problem = await problem_of(system, "named")
        assert (problem.status, problem.code) == (503, "load_failed")
        assert "its folder is gone" in problem.detail

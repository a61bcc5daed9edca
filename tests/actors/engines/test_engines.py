"""Opening and loading models: permissions granted to model folders, and data that a load reuses."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog

from greenroom.actors.core.ref import answer_or_failed
from greenroom.actors.engines.engines import Engines
from greenroom.actors.system import open_system
from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.catalog.model_files import fingerprint
from greenroom.engine.loading import devices
from greenroom.engine.text.text_engine import TextEngine
from greenroom.schemas.events.events import Failed, Finished, TextDelta
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.protocols.pool_protocol import ModelUnloaded, UnloadModel
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.actors.actor_systems import answer, generate, until
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel


async def test_code_of_a_folder_runs_only_with_trust_remote_code(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    folder, mark = shutil.copytree(tiny_model("qwen3"), tmp_path / "with-code"), tmp_path / "ran"
    code = f"from mlx_lm.models.qwen3 import Model, ModelArgs\nopen({str(mark)!r}, 'w').close()\n"
    (folder / "homegrown.py").write_text(code)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_file": "homegrown.py"}))
    settings = Settings(models=(str(folder),), shutdown_timeout=60.0)
    async with open_system(settings) as system:
        _, failed = await answer(system.pool, "default")
    assert isinstance(failed, Failed)
    assert failed.problem.code == "load_failed"
    assert "model_file" in failed.problem.detail
    assert not mark.exists()
    async with open_system(attrs.evolve(settings, trust_remote_code=True)) as system:
        _, finished = await answer(system.pool, "default")
    assert isinstance(finished, Finished)
    assert finished.usage.generated == 8
    assert mark.exists()


async def test_an_architecture_that_a_library_has_is_served_without_the_folders_code(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    folder, mark = shutil.copytree(tiny_model("qwen3"), tmp_path / "with-code"), tmp_path / "ran"
    code = "from transformers import Qwen3Config\nclass Config(Qwen3Config):\n    pass\n"
    (folder / "homegrown.py").write_text(f"{code}open({str(mark)!r}, 'w').close()\n")
    config = json.loads((folder / "config.json").read_text())
    written = {**config, "auto_map": {"AutoConfig": "homegrown.Config"}}
    (folder / "config.json").write_text(json.dumps(written))
    async with open_system(Settings(models=(str(folder),), shutdown_timeout=60.0)) as system:
        _, finished = await answer(system.pool, "default")
    assert isinstance(finished, Finished)
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["qwen3", "qwen2_vl"])
def test_a_load_takes_over_what_was_found_of_the_models_formats(
    tiny_model: TinyModel, tiny_vision_model: TinyVisionModel, tmp_path: Path, kind: str
) -> None:
    made = tiny_model(kind) if kind == "qwen3" else tiny_vision_model(kind)
    folder = shutil.copytree(made, tmp_path / kind)
    engines = Engines(Settings(models=(str(folder),)))
    opened = engines.open_model(engines.fetch(kind))
    prepares = opened.adapter
    assert isinstance(prepares, Adapter)
    engine = engines.load_engine(opened, lambda _: None, lambda: False)
    assert isinstance(engine, TextEngine)
    reads: Any = engine._adapter
    # Probing templates takes time. Their result is immutable, so both adapters share it.
    assert reads.choice is prepares.choice
    # A tokenizer belongs to one thread.
    assert reads.tokenizer is not prepares.tokenizer
    engine.close()


@pytest.mark.skipif(
    sys.platform == "darwin", reason="a Mac's GPU has no memory of its own, and only Linux tells a number"
)
def test_the_machines_memory_does_not_count_for_a_gpu_with_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Engines.available_memory() is not None
    monkeypatch.setattr(devices, "_device", "gpu")
    assert Engines.available_memory() is None


def test_a_model_is_opened_and_listed_as_probed_until_its_files_change(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path / "qwen3")
    engines = Engines(Settings(models=(str(folder),)))
    with structlog.testing.capture_logs() as logs:
        assert all(opened_parser(engines) == "hermes_json" for _ in range(2))
    assert [line["model"] for line in logs if line["event"] == "model not probed"] == ["qwen3"]
    engines.probed.record(ProbedCapabilities("qwen3", "text", "qwen", "llama_xml", files=fingerprint(folder)))
    assert opened_parser(engines) == "llama_xml"
    assert listed_as_probed(engines) == [True, True]
    (folder / "generation_config.json").write_text("{}")
    assert opened_parser(engines) == "hermes_json"
    anew = Engines(Settings(models=(str(folder),)), engines.probed)
    assert listed_as_probed(anew) == [False, False]


def opened_parser(engines: Engines) -> str:
    adapter = engines.open_model(engines.fetch("qwen3")).adapter
    assert isinstance(adapter, Adapter)
    return adapter.tool_parser.parser_id


def listed_as_probed(engines: Engines) -> list[bool]:
    described, listed = engines.describe("qwen3"), engines.describe(None)
    assert isinstance(described, tuple)
    assert isinstance(listed, tuple)
    records = (described[0].record, listed[0].record)
    return [known is not None and known.probed is not None for known in records]


@pytest.mark.deep
async def test_a_lost_rank_fails_the_requests_of_its_model_alone(tiny_model: TinyModel) -> None:
    folders = [tiny_model("qwen3"), tiny_model("llama")]
    tables = ((folders[0].name, ModelSettings(ranks=2)),)
    settings = Settings(models=tuple(map(str, folders)), model_settings=tables, shutdown_timeout=60.0)
    async with open_system(settings) as system:
        _, whole = await answer(system.pool, folders[1].name)
        before = rank_processes()
        with (
            generate(system.pool, folders[0].name, "lost", max_tokens=4000) as lost,
            generate(system.pool, folders[1].name, "other", max_tokens=200) as other,
        ):
            await until(lost, TextDelta)
            await until(other, TextDelta)
            started = rank_processes() - before
            assert len(started) == 2
            os.kill(max(started), signal.SIGSTOP)
            failed = [event async for event in lost][-1]
            assert isinstance(failed, Failed)
            assert failed.problem.code == "model_crashed"
            assert "silent" in failed.problem.detail
            assert isinstance([event async for event in other][-1], Finished)
        text, again = await answer(system.pool, folders[0].name)
        assert isinstance(whole, Finished)
        assert isinstance(again, Finished)
        assert text
    assert rank_processes() == before


class OpenEngines(Engines):
    """Engines whose memory account can be seen."""

    @property
    def charged(self) -> int:
        return self._open_account().charged


@pytest.mark.deep
async def test_a_model_with_ranks_that_gives_way_to_another_ends_them_and_returns_all_bytes(
    tiny_model: TinyModel,
) -> None:
    ranked, whole = (tiny_model(kind) for kind in ("qwen3", "llama"))
    tables = ((ranked.name, ModelSettings(ranks=2)),)
    settings = Settings(
        models=(str(ranked), str(whole)), model_settings=tables, max_loaded_models=1, shutdown_timeout=60.0
    )
    engines, before = OpenEngines(settings), rank_processes()
    async with open_system(settings, engines=engines) as system:
        first, _ = await answer(system.pool, ranked.name)
        assert len(rank_processes() - before) == 2
        assert isinstance((await answer(system.pool, whole.name))[1], Finished)
        assert rank_processes() == before
        again, _ = await answer(system.pool, ranked.name)
        assert again == first
        assert engines.charged > 0
        unloaded = await answer_or_failed(system.pool, UnloadModel(ModelKey(ranked.name)), ModelUnloaded)
        assert isinstance(unloaded, ModelUnloaded)
        assert (engines.charged, rank_processes()) == (0, before)


def rank_processes() -> set[int]:
    """Return the ranks that this process has started; on Linux alone."""
    found = set[int]()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and b"rank_process" in (process / "cmdline").read_bytes():
                found.add(int(process.name))
    return found

"""`greenroom rm` and `greenroom search`, alone and beside a server, against a hub on a local socket."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.hub_server import COMMIT, Hub, open_hub
from greenroom.tests.support.servers.server_processes import run_greenroom, serving

NAME = "org/chat"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("GREENROOM_PORT", "1")  # no server of another test
    return tmp_path / "hub"


@pytest.fixture
def hub(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {path.name: path.read_bytes() for path in tiny_model("llama").iterdir()}
    with open_hub({NAME: files}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


def test_a_model_is_found_pulled_and_deleted_after_a_question(cache: Path, hub: Hub) -> None:
    found = json.loads(run_greenroom("search", "chat", "--json").stdout)
    assert [(each["id"], each["local"]) for each in found] == [(NAME, False)]
    assert run_greenroom("pull", NAME).returncode == 0
    assert run_greenroom("search", "chat").stdout == f"{NAME}\t1\t0\there\n"
    kept = run_greenroom("rm", NAME, stdin="n\n")
    assert kept.returncode != 0
    assert f"Delete {NAME}, " in kept.stderr
    assert (cache / "models--org--chat" / "snapshots" / COMMIT).is_dir()
    deleted = run_greenroom("rm", NAME, stdin="y\n")
    assert (deleted.returncode, list(cache.glob("models--*"))) == (0, [])
    assert "There are no files of a model 'org/chat' to delete" in run_greenroom("rm", NAME, "--yes").stderr


def test_a_search_that_reaches_no_hub_is_one_line() -> None:
    refused = run_greenroom("search", "chat", HF_ENDPOINT="http://127.0.0.1:9")
    assert (refused.returncode, refused.stdout) == (1, "")
    [line] = refused.stderr.splitlines()
    assert "http://127.0.0.1:9 cannot be reached" in line


def test_only_the_cache_and_folders_of_models_lose_files(
    cache: Path, tiny_model: TinyModel, tmp_path: Path
) -> None:
    models, outside = tmp_path / "models", tmp_path / "outside"
    for folder in (models / "mine", outside):
        shutil.copytree(tiny_model("llama"), folder)
    (models / "linked").symlink_to(outside)
    for name in ("linked", str(outside), "../outside", "default", "greenroom-demo"):
        refused = run_greenroom("rm", name, "--yes", "--model-dir", str(models))
        assert refused.returncode == 1, name
    assert (outside / "config.json").exists()
    assert run_greenroom("rm", "mine", "--yes", "--model-dir", str(models)).returncode == 0
    assert not (models / "mine").exists()


def test_a_running_server_pulls_unloads_and_deletes(cache: Path, hub: Hub) -> None:
    with serving("--memory-bytes", "1048576") as server:
        pulled = run_greenroom("pull", NAME, "--url", server.address, "--no-probe")
        assert (pulled.returncode, pulled.stdout) == (0, "")
        assert f"the server at {server.address} fetches {NAME}" in pulled.stderr
        assert (cache / "models--org--chat" / "snapshots" / COMMIT).is_dir()
        wrong = run_greenroom("pull", "org/nothing", "--url", server.address)
        assert (wrong.returncode, "has no model of that name" in wrong.stderr) == (1, True)
        assert run_greenroom("rm", NAME, "--yes", "--url", server.address).returncode == 0
        assert list(cache.glob("models--*")) == []
    assert (
        "no Greenroom server answers"
        in run_greenroom("rm", "mine", "--yes", "--url", "http://127.0.0.1:9").stderr
        + run_greenroom("pull", NAME, "--url", "http://127.0.0.1:9").stderr
    )

"""Downloads of models named by hub id on the command line, from a hub on a local socket."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.hub_server import HubRequest, hub_server
from greenroom.tests.support.servers.server_processes import run_greenroom, serving

CHAT = {"model": "default", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def hub(
    tiny_model: TinyModel, tiny_encoder: TinyEncoder, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[HubRequest]]:
    """Run a hub with two models; yield the list of its requests."""
    models = {"org/chat": files_of(tiny_model("llama")), "org/bert": files_of(tiny_encoder("bert"))}
    with hub_server(models) as (address, asked):
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield asked


@pytest.mark.deep
def test_a_server_downloads_before_it_listens_and_says_how_much(
    cache: Path, hub: list[HubRequest], tiny_model: TinyModel
) -> None:
    with serving("org/chat") as server:
        events = [line["event"] for line in server.log]
        assert events.index("downloading") < events.index("downloaded") < events.index("listening")
        told = server.log[events.index("downloading")]
        weights = (tiny_model("llama") / "model.safetensors").stat().st_size
        assert (told["model"], told["files"], told["bytes"]) == ("org/chat", 1, weights)
        assert (told["source"].startswith("http://127.0.0.1:"), told["folder"]) == (True, str(cache))
        assert server.log[-1]["models"] == ["org/chat"]
        asked = len(hub)
        answer = httpx2.post(f"{server.address}/v1/chat/completions", json=CHAT, timeout=600)
        assert answer.status_code == 200, answer.text
        assert len(hub) == asked


@pytest.mark.deep
def test_a_command_says_so_beside_its_output(cache: Path, hub: list[HubRequest]) -> None:
    first = run_greenroom("embed", "org/bert", "hello")
    said = (
        r"org/bert is not on this machine: downloading \d+\.\d MB in 1 file from http://127\.0\.0\.1:\d+ to "
    )
    assert re.fullmatch(said + re.escape(f"{cache}\n"), first.stderr), first.stderr
    assert len(json.loads(first.stdout)["embedding"]) == 64
    again = run_greenroom("embed", "org/bert", "hello")
    assert (again.stdout, again.stderr) == (first.stdout, "")
    wrong = run_greenroom("speak", "Hello", "-o", "never.mp3", "-m", "org/bert")
    assert "'org/bert' is a model for embeddings: name one for speech" in wrong.stderr


def test_what_cannot_be_downloaded_ends_the_server_with_a_sentence(
    cache: Path, hub: list[HubRequest]
) -> None:
    for endpoint, why in (
        ({}, "http://127.0.0.1:{port} has no model of that name"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "http://127.0.0.1:9 cannot be reached ("),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE forbids it"),
    ):
        refused = run_greenroom("serve", "org/nothing", "--port", "0", "--log-level", "error", **endpoint)
        assert (refused.returncode, refused.stdout) == (1, "")
        [line] = refused.stderr.splitlines()
        assert "The model 'org/nothing' could not be downloaded: " in line
        assert why.partition("{")[0] in line
        assert "Got:" not in line


def test_a_name_that_is_neither_a_folder_nor_a_hub_id_is_told_how_to_be_one(tmp_path: Path) -> None:
    half = run_greenroom("serve", "mlx-community")
    assert "there is no folder 'mlx-community' with a config.json (a hub id is OWNER/NAME)" in half.stderr
    empty = run_greenroom("serve", str(tmp_path))
    assert f"'{tmp_path}' holds no model: " in empty.stderr

"""`greenroom serve` and `greenroom models` with folders that have no model, or one with a LoRA adapter."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import httpx2
import pytest

from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.server_processes import run_greenroom, serving

CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    (tmp_path / "q4").mkdir()
    (tmp_path / "q4" / "q4.gguf").touch()
    return tmp_path / "q4"


@pytest.fixture
def adapted(tiny_model: TinyModel, tmp_path: Path) -> Path:
    """Return a model folder with an adapter beside the weights."""
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path / "adapted")
    for name in ("adapter_config.json", "adapters.safetensors"):
        (folder / name).write_text("{}")
    return folder


@pytest.mark.deep
def test_a_folder_without_a_model_ends_no_server_of_others(gguf: Path, adapted: Path) -> None:
    with serving(str(adapted), str(gguf)) as server:
        with httpx2.Client(base_url=server.address, timeout=600) as client:
            answers = [
                client.post("/v1/chat/completions", json={**CHAT, "model": model})
                for model in ("default", "q4")
            ]
        server.process.terminate()
        assert server.end() == 0
    assert [answer.status_code for answer in answers] == [200, 503]
    assert "it holds GGUF (q4.gguf)" in answers[1].json()["error"]["message"]
    said = {line["event"]: line for line in server.log}
    assert said["model unusable"]["level"] == "warning"
    assert "it holds GGUF (q4.gguf)" in said["model unusable"]["reason"]
    assert (said["model notice"]["level"], said["model notice"]["model"]) == ("warning", "adapted")
    assert "the adapter beside its weights (adapters.safetensors)" in said["model notice"]["notice"]


def test_a_folder_without_a_model_alone_ends_the_command_in_one_line(gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run_greenroom("serve", str(gguf), str(tmp_path / "empty"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"greenroom: models: '{gguf}' holds no model: there is no config.json in its folder; it holds GGUF "
        "(q4.gguf), which Greenroom does not read\n"
    )


def test_models_lists_what_is_wrong(gguf: Path, adapted: Path) -> None:
    bad, odd = json.loads(run_greenroom("models", str(gguf), str(adapted), "--json").stdout)
    assert "it holds GGUF (q4.gguf)" in bad["problem"]
    assert odd["problem"] is None
    assert "is not applied" in odd["notices"][0]

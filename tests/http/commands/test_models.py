"""`greenroom models`: the list of models."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from greenroom.http.command_line import EngineModels
from greenroom.schemas.models.model_description import Download
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bench_servers import scripted_server
from greenroom.tests.support.servers.bounded_waits import bounded, wait_until
from greenroom.tests.support.servers.hub_server import Fault, Hub, open_hub
from greenroom.tests.support.servers.server_processes import GREENROOM, run_greenroom, serving


def test_models_lists_those_that_are_named_first(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    done = run_greenroom("models", str(folder), "org/model", "--json")
    rows = json.loads(done.stdout)
    assert [row["id"] for row in rows] == [folder.name, "org/model"]
    assert (rows[0]["family"], rows[0]["architecture"]) == ("qwen", "qwen3")
    assert rows[0]["capabilities"]["type"] == "text"
    assert rows[0]["size_bytes"] > 0
    assert rows[1]["folder"] is None
    assert folder.name in run_greenroom("models", str(folder)).stdout


def test_models_says_of_each_kind_what_tells_it_from_others(tiny_encoder: Callable[..., Path]) -> None:
    folders = [str(tiny_encoder(kind)) for kind in ("bert", "bert-rerank")]
    embeds, ranks = json.loads(run_greenroom("models", *folders, "--json").stdout)
    assert embeds["capabilities"]["dimensions"] == 64
    assert ranks["capabilities"]["outputs"] == ["score"]
    words = run_greenroom("models", *folders).stdout.split()
    assert {"rerank", "embeddings", "(64"} <= set(words)


def test_code_of_a_folder_is_trusted_only_if_the_operator_says_so(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path / "with-code")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_file": "model.py"}))
    [refused] = json.loads(run_greenroom("models", str(folder), "--json").stdout)
    assert "trust-remote-code" in refused["problem"]
    [trusted] = json.loads(run_greenroom("models", str(folder), "--json", "--trust-remote-code").stdout)
    assert trusted["problem"] is None


def test_show_tells_where_each_setting_of_a_model_comes_from(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder, file = tiny_model("qwen3"), tmp_path / "settings.toml"
    file.write_text(
        f'models = ["{folder}"]\ntemperature = 0.5\n[model.qwen3]\nkv_bits = 8\n'
        '[profiles."qwen3:code"]\nmodel = "qwen3"\ntop_k = 7\n'
    )
    shown = run_greenroom("show", "qwen3:code", "--config", str(file))
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in shown.stdout.splitlines() if line}
    facts = ("inputs", "outputs", "probed", "state")
    assert [lines[name] for name in facts] == ["text", "text", "no", "unknown without a server"]
    assert (lines["temperature"], lines["kv_bits"], lines["top_k"]) == (
        "0.5 (file)",
        "8 (model)",
        "7 (profile)",
    )
    assert (lines["images_max_count"], lines["type"], lines["fits"]) == ("5 (default)", "text", "yes")
    assert lines["base_model"] == "qwen3"
    flags = ("--config", str(file), "--model-settings", "qwen3:kv_bits=4", "--json")
    settings = json.loads(run_greenroom("show", "qwen3", *flags).stdout)["settings"]
    assert settings["kv_bits"] == {"value": 4, "origin": "model"}
    assert run_greenroom("show", str(folder), "--json").returncode == 0


MB = 1 << 20
NAME = "org/model"
WEIGHTS = "model.safetensors"
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    WEIGHTS: os.urandom(6 * MB),
}


@pytest.mark.parametrize("command", [("models",), ("show", "fake")])
def test_another_program_is_told_from_a_greenroom(command: tuple[str, ...]) -> None:
    with scripted_server(lambda _body: iter(())) as (address, _):
        refused = run_greenroom(*command, "--url", f"{address}/v1")
    assert refused.returncode == 1
    assert refused.stderr == f"greenroom: the server at {address} is no Greenroom: it describes no models\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("GREENROOM_PORT", "1")  # no server of another test
    return tmp_path / "hub"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with open_hub({NAME: FILES}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


def arrived(cache: Path) -> int:
    return sum(part.stat().st_size for part in cache.rglob("*.greenroom.part"))


@contextmanager
def started() -> Iterator[subprocess.Popen[str]]:
    command, pipe = [*GREENROOM, "pull", NAME], subprocess.PIPE
    with bounded(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)) as process:
        yield process


@pytest.mark.deep
def test_a_killed_pull_is_resumed_by_the_next(cache: Path, hub: Hub) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(4 * MB, "hold")
    with started() as killed:
        assert hub.held.wait(120)
        wait_until(lambda: arrived(cache) >= 3 * MB)
        refused = run_greenroom("rm", NAME, "--yes")
        assert (refused.returncode, "is being fetched: cancel that first" in refused.stderr) == (1, True)
        killed.kill()
    have = arrived(cache)
    assert not list(cache.glob("*/snapshots/*"))
    done = run_greenroom("pull", NAME)
    assert (done.returncode, hub.asked(WEIGHTS)) == (0, ["", f"bytes={have}-"])
    folder = Path(done.stdout.rstrip("\n"))
    assert (folder / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert "downloading" in done.stderr
    assert arrived(cache) == 0
    unprobed = folder.parents[1] / ".greenroom-unprobed"
    assert unprobed.exists()  # for the next server
    assert run_greenroom("pull", NAME, "--no-probe").returncode == 0
    assert not unprobed.exists()


@pytest.mark.deep
def test_two_processes_share_a_file(cache: Path, hub: Hub) -> None:
    hub.faults[f"{NAME}/{WEIGHTS}"] = Fault(2 * MB, "hold")
    with started() as first:
        assert hub.held.wait(120)
        with started() as second:
            assert second.stderr is not None
            assert "another process fetches the same model" in second.stderr.readline()
            hub.ending.set()
            assert [process.wait(120) for process in (first, second)] == [0, 0]
            folders = {process.stdout.read() for process in (first, second) if process.stdout is not None}
    [folder] = folders
    assert (Path(folder.strip()) / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert hub.asked(WEIGHTS) == ["", f"bytes={2 * MB}-"]


def test_a_pull_that_fails_says_why_on_one_line(cache: Path, hub: Hub) -> None:
    hub.gated.add(NAME)
    refused = run_greenroom("pull", NAME)
    assert (refused.returncode, refused.stdout) == (1, "")
    [line] = refused.stderr.splitlines()
    assert f"its terms have to be accepted at {hub.address}, and HF_TOKEN must be a token of who did" in line
    assert "name one as OWNER/NAME or OWNER/NAME@REVISION" in run_greenroom("pull", "nothing").stderr
    assert "HF_HUB_OFFLINE forbids it" in run_greenroom("pull", NAME, HF_HUB_OFFLINE="1").stderr


def test_a_pull_of_an_adapter_fetches_its_base_too(cache: Path, hub: Hub) -> None:
    config = {"peft_type": "LORA", "base_model_name_or_path": NAME}
    weights = "adapter_model.safetensors"
    hub.models["org/sql"] = {"adapter_config.json": json.dumps(config).encode(), weights: b"none"}
    for _ in range(2):
        told: list[Download] = []
        folder = EngineModels().fetch("org/sql", Settings(), told.append, lambda _: None)
        assert Path(folder, weights).read_bytes() == b"none"
        assert (len(hub.asked(WEIGHTS)), len(hub.asked(weights))) == (1, 1)
    assert len([*cache.glob(f"models--org--*/snapshots/*/{WEIGHTS}")]) == 1


def test_a_server_with_another_hub_is_told_and_not_asked(cache: Path, hub: Hub, tmp_path: Path) -> None:
    with serving("--db", ":memory:", HF_HUB_CACHE=str(tmp_path / "another")) as server:
        done = run_greenroom("pull", NAME)
        assert f"the server at {server.address} has another HF_HUB_CACHE: fetching here" in done.stderr
        assert Path(done.stdout.strip()).is_relative_to(cache)

"""A second host behind a real sshd."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import psutil
import pytest

from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bounded_waits import wait_until
from greenroom.tests.support.servers.server_processes import run_greenroom, serving
from greenroom.tests.support.servers.ssh_hosts import NAME, SecondHost, second_host


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondHost]:
    with second_host(tmp_path_factory.mktemp("ssh")) as host:
        yield host


@pytest.mark.deep
def test_hosts_are_examined_over_ssh(tmp_path: Path, far: SecondHost, tiny_model: TinyModel) -> None:
    hosts = tmp_path / "hosts.json"
    here, there = {"ssh": "localhost", "ips": [far.here]}, {"ssh": NAME, "ips": [far.there]}
    unused = {"ssh": "nobody.invalid", "ips": ["10.9.9.9"]}
    hosts.write_text(json.dumps([here, {**there, "memory_bytes": 10**9}, unused]))
    folder, settings = tiny_model("qwen3"), tmp_path / "settings.toml"
    settings.write_text(f'[model."{folder.name}"]\nranks = 2\nhosts = ["{hosts}"]\n')
    model = ["--config", str(settings), "--model", str(folder)]
    done = run_greenroom("hosts", "check", *model, PATH=far.path)
    assert (done.returncode, done.stderr) == (0, "")
    for told in (
        "reached by ssh",
        "may have 1.0 GB",
        "has the files of",
        "ms one way",
        f"rank 1 on {NAME} needs",
    ):
        assert told in done.stdout

    check = ["hosts", "check", str(hosts)]
    hosts.write_text(json.dumps([here, {**there, "ips": ["10.9.9.9"], "memory_bytes": 1}]))
    done = run_greenroom(*check, PATH=far.path)
    assert done.returncode == 1
    assert "no interface there has the address 10.9.9.9" in done.stdout
    hosts.write_text(json.dumps([here, {**there, "python": "/no/python"}, unused]))
    done = run_greenroom(*check, PATH=far.path)
    assert done.returncode == 1
    assert "/no/python has no Greenroom there" in done.stdout
    assert "ssh fails" in done.stdout
    assert "2 things are wrong." in done.stdout


@pytest.mark.deep
def test_a_model_too_large_for_one_machine_answers_over_two(
    tmp_path: Path, far: SecondHost, tiny_model: Callable[..., Path]
) -> None:
    folder = tiny_model("qwen3", num_hidden_layers=8)
    hosts, settings = tmp_path / "hosts.json", tmp_path / "settings.toml"
    there = {"ssh": NAME, "ips": [far.there], "memory_bytes": 14_000_000}
    hosts.write_text(json.dumps([{"ssh": "localhost", "ips": [far.here]}, there]))
    common = f'models = ["{folder}"]\nmemory_bytes = 14_000_000\ndb = ":memory:"\ndtype = "float32"\n'
    settings.write_text(common)
    asked = {
        "model": "default",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 8,
        "temperature": 0,
    }
    with serving("--config", str(settings)) as server:
        refused = httpx2.post(f"{server.address}/v1/chat/completions", json=asked, timeout=60)
        assert refused.status_code == 507
        assert "settings ranks and hosts" in refused.json()["error"]["message"]
    settings.write_text(f'{common}[model."{folder.name}"]\nranks = 2\n')
    with serving("--config", str(settings), "--hosts", str(hosts), PATH=far.path) as server:
        url = server.address
        answered = httpx2.post(f"{url}/v1/chat/completions", json=asked, timeout=120)
        assert answered.status_code == 200, answered.text
        [used] = [model for model in httpx2.get(f"{url}/admin/models").json()["models"] if model["ranks"]]
        assert [rank["host"] for rank in used["ranks"]] == ["localhost", NAME]
        assert sum(rank["layers"] for rank in used["ranks"]) == 8
        assert 0 < used["bytes"] <= 14_000_000
        listed = run_greenroom("ps", "--url", url).stdout
        assert f"rank 1 on {NAME} ({far.there}:" in listed
        # ssh ends when its server's process is gone, and with it the far rank.
        far_ranks = far_processes()
        assert far_ranks
        assert [line["addresses"] for line in server.read_log() if line["event"].startswith("ranks listen")]
    wait_until(lambda: not far_processes() & far_ranks)
    settings.write_text(common.replace("14_000_000", "1_000_000_000"))
    with serving("--config", str(settings)) as server:
        alone = httpx2.post(f"{server.address}/v1/chat/completions", json=asked, timeout=60)
    assert answered.json()["choices"] == alone.json()["choices"]


def far_processes() -> set[int]:
    """Return the processes of ranks that sshd has started."""
    return {
        process.pid
        for process in psutil.process_iter()
        if "greenroom.engine.ranks.rank_process" in _command(process) and "sshd" in _command(process.parent())
    }


def _command(process: psutil.Process | None) -> str:
    try:
        return "" if process is None else " ".join(process.cmdline())
    except psutil.Error:
        return ""

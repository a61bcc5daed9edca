"""`greenroom pull` as a process of its own: killed, run again, and run twice at once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from greenroom.tests.support.servers.bounded_waits import bounded, wait_until
from greenroom.tests.support.servers.hub_server import Fault, Hub, open_hub
from greenroom.tests.support.servers.server_processes import GREENROOM, run_greenroom, serving

MB = 1 << 20
NAME = "org/model"
WEIGHTS = "model.safetensors"
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    WEIGHTS: os.urandom(6 * MB),
}


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


def test_a_server_with_another_hub_is_told_and_not_asked(cache: Path, hub: Hub, tmp_path: Path) -> None:
    with serving("--db", ":memory:", HF_HUB_CACHE=str(tmp_path / "another")) as server:
        done = run_greenroom("pull", NAME)
        assert f"the server at {server.address} has another HF_HUB_CACHE: fetching here" in done.stderr
        assert Path(done.stdout.strip()).is_relative_to(cache)

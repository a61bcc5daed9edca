"""Limits of decoder processes, on systems that enforce them and on systems that do not."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from greenroom.engine.media import limited_process
from greenroom.engine.media.decoding_process import REFUSED, DecodingLimits
from greenroom.tests.support.hostile import refusing_system
from greenroom.tests.support.servers.bounded_waits import PATIENCE

MEGABYTE = 1 << 20
FILLING = """
import sys, time
kept = []
while len(kept) < int(sys.argv[1]):
    kept.append(b"x" * (1 << 20))
while len(kept) > 300:  # until the watcher looks
    time.sleep(0.1)
print(len(kept))
"""
LIMITS = "import json, resource; print(json.dumps([resource.getrlimit(kind) for kind in {kinds}]))"


def run(folder: Path, program: str, limits: DecodingLimits, *arguments: object) -> tuple[int, str, str]:
    """Return a program's exit status within limits, and its output."""
    path = folder / "decoder.py"
    path.write_text(program)
    done = subprocess.run(limits.command(path, *arguments), capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


@pytest.fixture(params=["kept by the system", "refused by the system"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a system that limits the address space, and one that does not."""
    if request.param == "refused by the system":
        monkeypatch.setattr(limited_process, "__file__", refusing_system.__file__)


@pytest.mark.usefixtures("system")
def test_a_decoder_takes_no_more_memory_than_it_may(tmp_path: Path) -> None:
    limits = DecodingLimits(memory=300 * MEGABYTE)
    assert run(tmp_path, FILLING, limits, 100) == (0, "100", "")
    assert run(tmp_path, FILLING, limits, 400) == (REFUSED, "", "it takes too much memory")


@pytest.mark.usefixtures("system")
def test_a_large_server_leaves_its_decoders_as_much_memory(tmp_path: Path) -> None:
    """A process's peak size is inherited by its child processes."""
    server = b"x" * (400 * MEGABYTE)
    assert run(tmp_path, FILLING, DecodingLimits(memory=300 * MEGABYTE), 10)[0] == 0
    assert len(server) == 400 * MEGABYTE


def test_a_decoder_has_limits_of_each_kind(tmp_path: Path) -> None:
    kinds = [resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE]
    limits = DecodingLimits(seconds=7, descriptors=40)
    status, output, _ = run(tmp_path, LIMITS.format(kinds=kinds), limits)
    assert (status, json.loads(output)) == (0, [[7, 7], [40, 40], [0, 0]])


@pytest.mark.deep
def test_a_decoder_takes_no_more_time_of_processors_than_it_may(tmp_path: Path) -> None:
    status, _, _ = run(tmp_path, "while True: pass", DecodingLimits(seconds=1))
    assert status in (-signal.SIGXCPU, -signal.SIGKILL)


def test_a_decoder_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    program = "raise ValueError('it has no pages')"
    assert run(tmp_path, program, DecodingLimits()) == (REFUSED, "", "it has no pages")


def test_a_broken_decoder_says_nothing_about_the_file(tmp_path: Path) -> None:
    status, _, told = run(tmp_path, "raise TypeError('ours')", DecodingLimits())
    assert status not in (0, REFUSED)
    assert "TypeError" in told

"""Files that tell where this user's servers are: of real servers, of dead ones, and of attackers."""

from __future__ import annotations

import json
import os
import signal
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from greenroom.http.process.runtime_file import (
    own_addresses,
    running_servers,
    runtime_file,
    runtime_folder,
)
from greenroom.tests.support.servers.server_processes import serving

ADDRESS = "http://127.0.0.1:8000"


def files() -> list[Path]:
    return list(runtime_folder().iterdir())


def write(name: str, content: str, mode: int = 0o600) -> Path:
    runtime_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    path = runtime_folder() / name
    path.write_text(content)
    path.chmod(mode)
    return path


@pytest.mark.deep
def test_servers_tell_where_they_are_until_they_end() -> None:
    with serving() as one, serving() as other:
        found = running_servers()
        assert {server.pid for server in found} == {one.process.pid, other.process.pid}
        assert {server.addresses[0] for server in found} == {one.address, other.address}
        assert [stat.S_IMODE(path.stat().st_mode) for path in files()] == [0o600, 0o600]
        assert stat.S_IMODE(runtime_folder().stat().st_mode) == 0o700
        other.process.kill()
        other.process.wait()
        assert [server.pid for server in running_servers()] == [one.process.pid]
        assert len(files()) == 2  # a killed server leaves its file, which counts no more
        with serving() as third:
            assert {server.pid for server in running_servers()} == {one.process.pid, third.process.pid}
            assert len(files()) == 2  # the next server removes it
            third.process.send_signal(signal.SIGTERM)
            assert third.end() == 0
        one.process.send_signal(signal.SIGTERM)
        assert one.end() == 0
    assert files() == []


def test_a_file_of_an_earlier_start_counts_nothing_though_its_process_id_is_alive() -> None:
    # As after a kill, when this process has got the id of the dead server.
    write(
        "server-0123456789abcdef.json", json.dumps({"addresses": [ADDRESS], "pid": os.getpid(), "started": 1})
    )
    assert running_servers() == []
    with runtime_file([ADDRESS]):
        assert [server.pid for server in running_servers()] == [os.getpid()]
        assert len(files()) == 1


def test_only_loopback_is_ever_asked() -> None:
    bound = (
        "http://0.0.0.0:8000",
        "http://[::]:8000",
        "http://192.168.1.2:8000",
        "http://[::1]:8000",
        ADDRESS,
    )
    assert own_addresses(bound) == (ADDRESS, "http://[::1]:8000")
    assert own_addresses(("unix:/run/a.sock", ADDRESS)) == (ADDRESS, "unix:/run/a.sock")
    for wrong in (
        "http://127.0.0.1:1@evil.example:80",
        "http://127.0.0.1.evil.example:80",
        "file:///etc",
        "unix:a.sock",
    ):
        assert own_addresses([wrong]) == ()


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 60_000, '{"addresses": "x"}', "\0" * 100_000])
def test_a_file_that_no_server_wrote_is_left_out(content: str) -> None:
    import fcntl

    file = write("server-0123456789abcdef.json", content).open()
    with ExitStack() as opened:
        opened.callback(file.close)
        fcntl.flock(file, fcntl.LOCK_EX)
        assert running_servers() == []


def test_files_of_attackers_are_left_out_and_nothing_waits_for_them(tmp_path: Path) -> None:
    with runtime_file([ADDRESS]):
        (real,) = files()
        elsewhere = tmp_path / "elsewhere.json"
        real.rename(elsewhere)
        assert running_servers() == []
        real.symlink_to(elsewhere)
        assert running_servers() == []
        real.unlink()
        os.mkfifo(real, 0o600)
        assert running_servers() == []
        real.unlink()
        real.mkdir(mode=0o700)
        assert running_servers() == []
        real.rmdir()
        elsewhere.chmod(0o644)
        elsewhere.rename(real)
        assert running_servers() == []
        real.chmod(0o600)
        assert len(running_servers()) == 1
        # Others could put files of this user's elsewhere into such a folder, or remove them.
        runtime_folder().chmod(0o770)
        assert running_servers() == []
        runtime_folder().chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_files_and_folder_are_left_out() -> None:
    with runtime_file([ADDRESS]):
        (real,) = files()
        os.chown(real, 12345, 12345)
        assert running_servers() == []
        os.chown(real, 0, 0)
        os.chown(runtime_folder(), 12345, 12345)
        assert running_servers() == []
        os.chown(runtime_folder(), 0, 0)
        assert len(running_servers()) == 1


def test_a_server_starts_beside_a_folder_that_it_cannot_use() -> None:
    runtime_folder().parent.mkdir()
    runtime_folder().symlink_to("/tmp")
    with serving() as server:
        assert any(line["event"] == "no runtime file" for line in server.log)
        assert running_servers() == []

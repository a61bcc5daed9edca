"""Unix sockets: their user's alone, taken over from dead servers, and counted as this machine."""

from __future__ import annotations

import os
import signal
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trio

from greenroom.api import open_system, serve
from greenroom.http.transport.bound_sockets import bind_path, remove_paths, unix_paths
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.server_processes import run_greenroom, serving


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    with tempfile.TemporaryDirectory(prefix="greenroom-", dir="/tmp") as folder:  # a short path
        yield f"{folder}/a.sock"


def ask(path: str, route: str) -> int:
    with httpx.Client(transport=httpx.HTTPTransport(uds=path), timeout=60) as client:
        return client.get(f"http://localhost{route}").status_code


@pytest.mark.parametrize("supervised", [(), ("--supervised",)], ids=["alone", "supervised"])
def test_a_socket_is_its_users_alone_and_gone_with_the_server(path: str, supervised: tuple[str, ...]) -> None:
    with serving("--listen", f"unix:{path}", *supervised, only_json=False) as server:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert [ask(path, route) for route in ("/health", "/v1/models", "/admin/models")] == [200] * 3
        assert httpx.get(f"{server.address}/health", timeout=60).status_code == 200
        taken = run_greenroom("serve", "--port", "0", "--listen", f"unix:{path}")
        assert taken.returncode == 1
        assert f"cannot listen on unix:{path}" in taken.stderr
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
        assert not os.path.exists(path)


def test_what_a_dead_server_left_is_taken_over_and_a_file_is_not(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with serving("--listen", f"unix:{path}"):
        assert ask(path, "/health") == 200
    if os.path.exists(path):  # the server was killed at the end of the block
        os.unlink(path)
    Path(path).write_text("a file of somebody's")
    refused = run_greenroom("serve", "--port", "0", "--listen", f"unix:{path}")
    assert refused.returncode == 1
    assert Path(path).read_text() == "a file of somebody's"


async def test_a_server_that_cannot_begin_leaves_no_socket(path: str) -> None:
    settings = Settings(port=0, listen=(f"unix:{path}",), tls_certificate="/nowhere", shutdown_timeout=60.0)
    async with open_system(settings) as system:
        with pytest.raises(FileNotFoundError):
            await serve(system, settings)
    assert not await trio.Path(path).exists()


@pytest.mark.parametrize("address", ["unix:", "unix:relative", "unix:/" + "a" * 200, "/run/a:80"])
def test_a_bad_path_is_a_bad_setting(address: str) -> None:
    refused = run_greenroom("serve", "--port", "0", "--listen", address)
    assert refused.returncode == 2
    assert "listen" in refused.stderr


def test_loopback_is_all_a_key_of_nobody_needs(path: str, tmp_path: Path) -> None:
    options = ("--listen", f"unix:{path}", "--open-loopback", "--db", str(tmp_path / "db"))
    with serving(*options, "--api-key-file", str(_key_file(tmp_path))):
        assert (ask(path, "/v1/models"), ask(path, "/admin/models")) == (200, 403)


def _key_file(folder: Path) -> Path:
    file = folder / "key"
    file.write_text("a-key")
    return file


def test_the_socket_of_a_later_server_is_left_alone(path: str) -> None:
    with bind_path(path) as first:
        [bound] = unix_paths([first])
        os.unlink(path)
        with bind_path(path) as second:
            remove_paths([bound])
            assert os.path.exists(path)
            remove_paths(unix_paths([second]))
            assert not os.path.exists(path)


@pytest.mark.deep
def test_a_path_that_somebody_removes_is_logged(path: str) -> None:
    with serving("--listen", f"unix:{path}") as server:
        assert ask(path, "/health") == 200
        os.unlink(path)
        assert server.wait_for("socket path removed")["path"] == path

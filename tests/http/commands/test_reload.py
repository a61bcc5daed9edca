"""Changed settings for running servers: by `greenroom reload`, by the route and by SIGHUP."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bounded_waits import PATIENCE, wait_until
from greenroom.tests.support.servers.server_processes import (
    GREENROOM,
    ServerProcess,
    run_greenroom,
    serving,
)


def ask(
    server: ServerProcess, model: str, host: str | None = None, content: str = "Hello"
) -> httpx2.Response:
    body = {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 2}
    headers = {} if host is None else {"Host": host}
    return httpx2.post(f"{server.address}/v1/chat/completions", json=body, headers=headers, timeout=120)


def reload(server: ServerProcess) -> subprocess.CompletedProcess[str]:
    return run_greenroom("reload", "--url", server.address)


@pytest.mark.deep
def test_changed_settings_come_into_force_and_others_are_named(tiny_model: TinyModel, tmp_path: Path) -> None:
    model, file = tiny_model("qwen3"), tmp_path / "settings.toml"
    file.write_text("")
    # Not forked: libraries imported before the log is set up write debug lines of their own.
    arguments = (str(model), "--config", str(file), "--db", ":memory:")
    with serving(*arguments, program=GREENROOM) as server:
        assert ask(server, model.name).status_code == 200
        assert ask(server, "other").status_code == 404
        assert ask(server, model.name, host="a.example").status_code == 403
        file.write_text(
            f"""
            max_batch = 3
            log_level = "debug"
            allowed_hosts = ["a.example"]
            [model."{model.name}"]
            alias = ["other"]
            max_context = 16
            [profiles."third"]
            model = "{model.name}"
            """
        )
        told = reload(server)
        assert (told.returncode, told.stderr) == (0, "")
        assert told.stdout.splitlines() == [
            "in force: allowed_hosts, log_level, model_settings, profiles",
            f"opened anew for the next request: {model.name}",
            "need a restart: max_batch",
        ]
        assert ask(server, model.name, host="a.example").status_code == 200
        for name in ("other", "third"):
            assert ask(server, name).status_code == 200
        long = ask(server, model.name, content="word " * 100)
        assert (long.status_code, long.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert reload(server).stdout == "need a restart: max_batch\n"

        file.write_text('log_level = "loud"')
        refused = reload(server)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "log_level = 'loud'" in refused.stderr
        assert ask(server, "other").status_code == 200, "nothing has changed"

        file.write_text('draft_model = "~no-such-user/draft"')
        server.process.send_signal(signal.SIGHUP)
        for _ in range(2):  # once by the command
            server.wait_for("settings not reloaded")
        assert ask(server, "other").status_code == 200, "nothing has changed"

        file.write_text("")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("settings reloaded")
        assert ask(server, "other").status_code == 404
        # The model is opened anew once the request before has given back its lease.
        wait_until(lambda: ask(server, model.name, content="word " * 100).status_code == 200)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("stopped")
        assert server.process.wait(PATIENCE) == 0
    assert any(line["level"] == "debug" for line in server.log)
    reloaded = [number for number, line in enumerate(server.log) if line["event"] == "settings reloaded"]
    assert [line for line in server.log[reloaded[-1] + 1 :] if line["level"] == "debug"] == []


def test_a_server_that_is_not_there_or_another_program_is_told_in_one_line() -> None:
    gone = run_greenroom("reload", "--url", "http://127.0.0.1:9")
    assert gone.returncode == 1
    assert gone.stderr.startswith("greenroom: no Greenroom server answers at http://127.0.0.1:9: ")
    assert gone.stderr.count("\n") == 1
    assert run_greenroom("reload", "--url", "nonsense").returncode == 2


class Terminal:
    """A program at a terminal of its own, whose session ends with the terminal."""

    def __init__(self, *command: str) -> None:
        self._terminal, other = pty.openpty()
        code = (
            "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR)); os.execv(sys.argv[1], sys.argv[1:])"
        )
        self.process: subprocess.Popen[Any] = subprocess.Popen(
            [sys.executable, "-c", code, *command],
            stdin=other,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        os.close(other)

    def close(self) -> None:
        os.close(self._terminal)


@pytest.mark.parametrize(
    "mode", [(), pytest.param(("--supervised",), marks=pytest.mark.deep)], ids=["lone", "supervised"]
)
def test_the_end_of_the_terminal_ends_the_server(mode: tuple[str, ...]) -> None:
    arguments = ("serve", "--port", "0", "--log-format", "json", "--db", ":memory:", *mode)
    terminal = Terminal(*GREENROOM, *arguments)
    with terminal.process as process:
        try:
            server = ServerProcess(process)
            terminal.close()
            assert server.end(120) == 0
        finally:
            process.kill()
    assert "draining" in [line["event"] for line in server.log]


@pytest.mark.deep
def test_under_nohup_a_reload_is_one_even_when_the_terminal_is_gone() -> None:
    arguments = ("serve", "--port", "0", "--log-format", "json", "--db", ":memory:", "--supervised")
    terminal = Terminal("/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh", *GREENROOM, *arguments)
    with terminal.process as process:
        try:
            server = ServerProcess(process)
            terminal.close()
            process.send_signal(signal.SIGHUP)
            server.wait_for("settings reloaded")
            process.send_signal(signal.SIGTERM)
            assert server.end(120) == 0
        finally:
            process.kill()

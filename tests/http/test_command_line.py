"""The command line as users run it: real processes, real signals, a real terminal, a real server."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from greenroom.tests.support.server_processes import GREENROOM, Server, serving

CHAT = {"messages": [{"role": "user", "content": "Hello"}]}


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*GREENROOM, *arguments], input=stdin, capture_output=True, text=True, timeout=600)


def test_help_names_every_command_with_examples_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "from greenroom.http.command_line import main\n"
        "try: main()\n"
        "finally: print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    for word in ("serve", "chat", "models", "bench", "--version", "Examples:"):
        assert word in done.stdout
    imported = done.stdout.splitlines()[-1].split()
    assert "click" in imported
    assert not {"trio", "structlog", "attrs", "rich", "tomllib", "mlx", "numpy"} & set(imported)


@pytest.mark.parametrize("command", ["serve", "chat", "models", "bench"])
def test_each_command_has_help_with_examples(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert "Examples:" in done.stdout
    assert f"greenroom {command}" in done.stdout


def test_version() -> None:
    done = run("--version")
    assert re.fullmatch(r"greenroom \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "No such command 'nope'"),
        (["serve", "--nope"], "No such option"),
        (["serve", "./nowhere"], "there is no folder './nowhere'"),
        (
            ["serve", "--prefix-cache-dir", "/dev/null/x"],
            "prefix_cache_dir = '/dev/null/x': cannot be written to",
        ),
        (["serve", "--prefix-cache-dir", __file__], "cannot be written to (File exists)"),
        (["serve", "--prefix-cache-dir", "/tmp", "--prefix-cache-bytes", "0"], "prefix_cache_bytes is 0"),
        (["serve", "--prefix-cache-disk-bytes", "9"], "at least 1,000,000"),
        (["chat", "./nowhere"], "there is no folder './nowhere'"),
        (["serve", "--speculation", "draft"], "draft_model has to name the model that drafts"),
        (["serve", "--speculation", "lookup", "--draft-model", "."], "leave one of them out"),
        (["chat", "--draft-model", "./nowhere"], "draft_model: there is no folder './nowhere'"),
        (["serve", "--host", "nowhere.invalid", "--port", "0"], "cannot listen on nowhere.invalid"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(arguments: list[str], message: str) -> None:
    done = run(*arguments, *(["--log-level", "error"] if arguments[0] == "serve" else []))
    assert done.returncode == (1 if "--host" in arguments else 2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_taken_port_is_told_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--port", str(port), "--log-level", "error")
    assert done.returncode == 1
    assert done.stderr == f"greenroom: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_models_lists_those_that_are_named_first(tiny_model: Callable[..., Path]) -> None:
    folder = tiny_model("qwen3")
    done = run("models", str(folder), "org/model", "--json")
    rows = json.loads(done.stdout)
    assert [row["id"] for row in rows] == [folder.name, "org/model"]
    assert rows[0]["family"] == "qwen"
    assert rows[0]["size"] > 0
    assert rows[1]["folder"] is None
    assert folder.name in run("models", str(folder)).stdout


def test_a_server_from_start_to_signal(tiny_model: Callable[..., Path]) -> None:
    with serving(str(tiny_model("qwen3"))) as server:
        assert server.process.pid == server.seen[-1]["pid"]
        with httpx.Client(base_url=server.address, timeout=600) as client:
            body = {"model": "default", "max_tokens": 3, "messages": [{"role": "user", "content": "SECRET"}]}
            assert client.post("/v1/chat/completions", json=body).json()["usage"]["completion_tokens"] == 3
            assert client.post("/v1/chat/completions", json={**body, "model": "nope"}).status_code == 404
            assert client.get("/nowhere").status_code == 404
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
    events = {line["event"] for line in server.seen}
    assert {"listening", "draining", "state changed", "request finished", "stopped"} <= events
    assert "SECRET" not in json.dumps(server.seen)


def test_a_reader_that_stalls_does_not_outlast_the_shutdown_timeout(tiny_model: Callable[..., Path]) -> None:
    with serving(str(tiny_model("qwen3")), "--shutdown-timeout", "2") as server, stalled_stream(server):
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0


def test_a_second_interrupt_ends_the_server_at_once(tiny_model: Callable[..., Path]) -> None:
    with serving(str(tiny_model("qwen3"))) as server, stalled_stream(server):
        server.process.send_signal(signal.SIGINT)
        server.wait_for("draining")
        server.process.send_signal(signal.SIGINT)
        assert server.end() == 130  # at the end of the shutdown's time it would be 0


@contextmanager
def stalled_stream(server: Server) -> Iterator[None]:
    """A client in the midst of an endless answer that has stopped reading."""
    host, port = server.address.removeprefix("http://").split(":")
    body = json.dumps({**CHAT, "model": "default", "stream": True, "max_tokens": 2000}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        received = b""
        while b'"content"' not in received:
            received += client.recv(1024)
        yield


def test_at_a_terminal_the_server_says_what_to_do_next(tiny_model: Callable[..., Path]) -> None:
    command = [*GREENROOM, "serve", str(tiny_model("qwen3")), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        said = next(line for line in process.stdout if line.strip().startswith("curl"))
        words = shlex.split(said)
        address, body = words[2], json.loads(words[-1])
        with httpx.stream("POST", address, json={**body, "max_tokens": 2}, timeout=600) as response:
            assert response.read().rstrip().endswith(b"data: [DONE]")
        process.send_signal(signal.SIGINT)
        assert "base_url" in process.stdout.read()
        assert process.wait(60) == 0


def test_chat_answers_what_is_piped_into_it(tiny_model: Callable[..., Path]) -> None:
    arguments = ("chat", str(tiny_model("qwen3")), "--max-tokens", "12", "--temperature", "0")
    first, second = run(*arguments, stdin="Hello\n"), run(*arguments, stdin="Hello\n")
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    assert len(first.stdout) > 1
    assert first.stdout == second.stdout
    with serving(str(tiny_model("qwen3"))) as server:
        remote = run("chat", "--url", server.address, *arguments[2:], stdin="Hello\n")
        assert (remote.returncode, remote.stdout) == (0, first.stdout)
        refused = run("chat", "nope", "--url", server.address, stdin="Hello\n")
    assert refused.returncode == 1
    assert "'nope' does not exist" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


class Terminal:
    """A process whose stdin, stdout and stderr are a terminal."""

    def __init__(self, *arguments: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execvpe(GREENROOM[0], [*GREENROOM, *arguments], {**os.environ, "TERM": "xterm-256color"})
        self.shown = ""

    def write(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def read_until(self, text: str, seconds: float = 300) -> str:
        """What is shown from now on, up to `text`."""
        shown, deadline = "", time.monotonic() + seconds
        while text not in shown:
            assert time.monotonic() < deadline, self.shown + shown
            if select.select([self._fd], [], [], 0.1)[0]:
                shown += os.read(self._fd, 4096).decode("utf-8", "replace")
        self.shown += shown
        return shown

    def end(self) -> int:
        """The exit status."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)


def test_chat_at_a_terminal_takes_turns_and_stops_an_answer_at_ctrl_c(
    tiny_model: Callable[..., Path],
) -> None:
    terminal = Terminal("chat", str(tiny_model("qwen3")), "--max-tokens", "1500")
    terminal.read_until(">>> ")
    terminal.write("Hello\n")
    terminal.read_until("\x1b[?25h")
    terminal.write("\x03")
    terminal.read_until(">>> ")
    terminal.write("/new\n")
    terminal.read_until(">>> ")
    terminal.write("\x04")
    assert terminal.end() == 0


def test_bench_measures_a_model_against_the_bare_loops(tiny_model: Callable[..., Path]) -> None:
    plan = ("--concurrency", "2", "--tokens", "6", "--prompt-words", "4", "--repeats", "2", "--json")
    done = run("bench", str(tiny_model("qwen3")), *plan)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["errors"] == []
    assert 0 < result["tokens"] <= 24
    figures = result["figures"]
    for ratio in ("of_batch_generator", "of_bare_loop", "own_over_bare"):
        assert len(figures[ratio]["runs"]) == 2
        assert 0 < figures[ratio]["low"] <= figures[ratio]["median"] < 20
    assert {"cpu_beyond_batch_generator", "cpu_beyond_bare_loop"} <= set(figures)


def test_bench_says_why_a_model_cannot_be_served() -> None:
    done = run("bench", "./nowhere")
    assert done.returncode == 1
    assert "there is no folder './nowhere'" in done.stderr
    assert len(done.stderr.splitlines()) == 1

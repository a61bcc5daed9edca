"""`greenroom serve` as users run it: real processes, real signals, real clients."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bounded_waits import PATIENCE, bounded, wait_until
from greenroom.tests.support.servers.server_processes import GREENROOM, ServerProcess, serving

CHAT = {"messages": [{"role": "user", "content": "Hello"}]}


def test_a_server_from_start_to_signal(tiny_model: TinyModel) -> None:
    with serving(str(tiny_model("qwen3")), program=GREENROOM) as server:
        assert server.process.pid == server.log[-1]["pid"]
        with httpx2.Client(base_url=server.address, timeout=600) as client:
            body = {"model": "default", "max_tokens": 3, "messages": [{"role": "user", "content": "SECRET"}]}
            assert client.post("/v1/chat/completions", json=body).json()["usage"]["completion_tokens"] == 3
            assert client.post("/v1/chat/completions", json={**body, "model": "nope"}).status_code == 404
            assert client.get("/nowhere").status_code == 404
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
    events = {line["event"] for line in server.log}
    assert "received" not in events  # logged at level debug only
    assert {"listening", "draining", "state changed", "request finished", "stopped"} <= events
    assert "SECRET" not in json.dumps(server.log)


@pytest.mark.deep
def test_a_reader_that_stalls_does_not_hold_a_shutdown(tiny_model: TinyModel) -> None:
    body = {**CHAT, "model": "default", "stream": True, "max_tokens": 2000}
    timeout = ("--shutdown-timeout", "600")
    with serving(str(tiny_model("qwen3")), *timeout) as server, begun(server, body) as received:
        wait_until(lambda: b'"content"' in received())
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0


@pytest.mark.deep
def test_a_second_interrupt_ends_the_server_at_once(tiny_model: TinyModel) -> None:
    body = {**CHAT, "model": "default", "max_tokens": 20_000, "n": 8}
    with serving(str(tiny_model("qwen3"))) as server, begun(server, body):
        server.wait_for("request admitted")
        server.process.send_signal(signal.SIGINT)
        server.wait_for("draining")
        server.process.send_signal(signal.SIGINT)
        assert server.end() == 130  # 0 if it had finished its answer


@contextmanager
def begun(server: ServerProcess, body: dict[str, Any]) -> Iterator[Callable[[], bytes]]:
    """Send a request; yield a function that reads part of the answer. Small buffers hold up the rest."""
    host, port = server.address.removeprefix("http://").split(":")
    encoded = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE)
        client.connect((host, int(port)))
        client.sendall(f"{head}Content-Length: {len(encoded)}\r\n\r\n".encode() + encoded)
        yield lambda: client.recv(1024)


@pytest.mark.deep
@pytest.mark.parametrize("stores", [True, False])
def test_at_a_terminal_the_server_says_what_to_do_next(
    tiny_model: TinyModel, tmp_path: Path, stores: bool
) -> None:
    command = [*GREENROOM, "serve", str(tiny_model("qwen3")), "--port", "0"]
    if not stores:
        (tmp_path / "greenroom").write_bytes(b"")  # no folder for a database
    variables = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    pipe, silent = subprocess.PIPE, subprocess.DEVNULL
    with bounded(subprocess.Popen(command, stdout=pipe, stderr=silent, text=True, env=variables)) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert re.search(r" on http://127\.0\.0\.1:(\d+)( and http://\[::1\]:\1)?$", first), first
        hint = next(line for line in process.stdout if line.strip().startswith("curl"))
        words = shlex.split(hint)
        address, body = words[2], json.loads(words[-1])
        with httpx2.stream("POST", address, json={**body, "max_tokens": 2}, timeout=600) as response:
            assert response.read().rstrip().endswith(b"data: [DONE]")
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert "base_url" in rest
        told = re.search(r"What clients store goes to .*greenroom\.db; --no-store-responses keeps", rest)
        assert bool(told) == stores
        assert process.wait(PATIENCE) == 0


@pytest.mark.deep
def test_flags_reach_the_server(tiny_model: TinyModel) -> None:
    flags = (
        *("--log-level", "debug", "--max-tokens", "3", "--temperature", "0", "--max-context", "64"),
        *("--max-body-bytes", "2000", "--allowed-hosts", "greenroom.example"),
        *("--allowed-origins", "https://chat.example"),
    )

    def chat(words: int = 1, **headers: str) -> httpx2.Response:
        body = {"model": "default", "messages": [{"role": "user", "content": "word " * words}]}
        return httpx2.post(f"{server.address}/v1/chat/completions", json=body, headers=headers, timeout=60)

    with serving(str(tiny_model("qwen3")), *flags) as server:
        first, second = chat(), chat()
        assert first.json()["usage"]["completion_tokens"] == 3
        assert first.json()["choices"] == second.json()["choices"]
        assert chat(100).json()["error"]["code"] == "context_length_exceeded"
        assert chat(1000).status_code == 413
        assert chat(host="greenroom.example").status_code == 200
        assert chat(host="other.example").status_code == 403
        assert "access-control-allow-origin" in chat(origin="https://chat.example").headers
        server.process.send_signal(signal.SIGTERM)
        server.end()
    assert "received" in {line["event"] for line in server.log}

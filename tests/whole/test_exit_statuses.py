"""Exit statuses of servers, with real processes, signals and models; the notes list the same."""

from __future__ import annotations

import ast
import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from greenroom.http.process.exit_status import ExitStatus, restart_after, status_of_signal
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.server_processes import (
    ServerProcess,
    failing,
    run_greenroom,
    serving,
)

ROOT = Path(__file__).parents[2]
IGNORED = (
    "[METAL] Command buffer execution failed: Ignored (for causing prior/excessive GPU errors) "
    "(00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)"
)
ENDLESS = 100_000
ENDS = {"exit", "sys.exit", "os._exit", "_leave_at_once", "_end"}


def body(model: str, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hello"}], **fields}


def test_the_notes_have_each_status_and_no_other() -> None:
    page = (ROOT / "notes" / "exit-statuses.md").read_text()
    told = dict(re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.MULTILINE))
    assert {int(status) for status in told} == set(ExitStatus)
    assert told["0"].startswith("done")
    assert told["2"].startswith("bad setting")
    assert told["70"].startswith("device lost")
    assert told["75"].startswith("forced end or hung")
    assert told["130"].startswith("a second Ctrl-C")
    assert "| 128 + n |" in page
    restarts = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|", page, re.MULTILINE)
    assert {int(status): restart_after(int(status)).value for status, _ in restarts} == {
        int(status): restart for status, restart in restarts
    }
    assert restart_after(status_of_signal(signal.SIGTERM)).value == "no"
    assert status_of_signal(signal.SIGINT) == ExitStatus.INTERRUPTED


def test_no_process_ends_with_a_number_that_only_its_line_knows() -> None:
    for path in sorted((ROOT / "http").rglob("*.py")):
        source = path.read_text()
        if not any(f"{name.rpartition('.')[2]}(" in source for name in ENDS):
            continue
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ENDS:
                assert not any(isinstance(given, ast.Constant) for given in call.args), (path, call.lineno)


TEXT = re.compile(r'"content": ?"[^"]')


@contextmanager
def streaming(server: ServerProcess, model: str) -> Iterator[Iterator[str]]:
    """Start an endless streamed answer; yield the lines after its first text."""
    asked = body(model, stream=True, max_tokens=ENDLESS, ignore_eos=True)
    with httpx2.stream("POST", f"{server.address}/v1/chat/completions", json=asked, timeout=600) as response:
        lines = response.iter_lines()
        # The first piece is empty, and comes while the model is still loaded.
        while not TEXT.search(next(lines)):
            pass
        yield lines


def ask(server: ServerProcess, model: str) -> httpx2.Response:
    return httpx2.post(f"{server.address}/v1/chat/completions", json=body(model, max_tokens=2), timeout=600)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.deep)])
def test_a_server_that_has_drained_ends_with_0(tiny_model: TinyModel, number: signal.Signals) -> None:
    with serving(str(tiny_model("qwen3"))) as server:
        assert ask(server, "qwen3").status_code == 200
        server.process.send_signal(number)
        assert server.end() == 0


def test_a_bad_setting_ends_a_server_with_2() -> None:
    for arguments in (["--port", "many"], ["./nowhere"]):
        assert run_greenroom("serve", *arguments).returncode == 2
    assert run_greenroom("serve", GREENROOM_MAX_BATCH="0").returncode == 2


def test_an_address_that_is_taken_ends_a_server_with_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run_greenroom("serve", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1


@pytest.mark.deep
def test_a_second_interrupt_ends_a_server_with_130(tiny_model: TinyModel) -> None:
    with (
        serving(str(tiny_model("qwen3")), "--shutdown-timeout", "600") as server,
        streaming(server, "qwen3"),
    ):
        server.process.send_signal(signal.SIGINT)
        server.wait_for("draining")
        server.process.send_signal(signal.SIGINT)
        assert server.end() == 130


@pytest.mark.deep
def test_a_server_that_had_to_be_forced_ends_with_75(tiny_model: TinyModel) -> None:
    model = tiny_model("qwen3")
    program = failing("hang", model.name)
    with (
        serving(str(model), "--shutdown-timeout", "2", program=program) as server,
        begun(server, body("qwen3")),
    ):
        server.wait_for("step fails")
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 75


@contextmanager
def begun(server: ServerProcess, asked: dict[str, Any]) -> Iterator[None]:
    """Send a request, and keep the connection open without reading the answer."""
    host, port = server.address.removeprefix("http://").split(":")
    encoded = json.dumps(asked).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port))) as client:
        client.sendall(f"{head}Content-Length: {len(encoded)}\r\n\r\n".encode() + encoded)
        yield


@pytest.mark.deep
def test_a_server_that_has_lost_its_device_says_so_and_ends_with_70(tiny_model: TinyModel) -> None:
    good, bad = tiny_model("qwen3"), tiny_model("llama")
    # Unpaced, the answer would fill its context or the unread sockets, and the server end early.
    program = failing(IGNORED, bad.name, loss_seconds=600, pace=0.05)
    models = (str(good), str(bad), "--max-loaded-models", "2", "--shutdown-timeout", "600")
    with serving(*models, program=program) as server:
        with streaming(server, good.name) as lines:
            crashed = ask(server, bad.name)
            assert (crashed.status_code, crashed.json()["error"]["code"]) == (500, "model_crashed")
            server.wait_for("draining")
            for model in (good.name, bad.name):
                refused = ask(server, model)
                assert (refused.status_code, refused.json()["error"]["code"]) == (503, "device_lost")
            ready = httpx2.get(f"{server.address}/readyz", timeout=600)
            assert (ready.status_code, ready.json()["error"]["code"]) == (503, "not_ready")
            assert "the device is lost" in ready.json()["detail"]
            assert httpx2.get(f"{server.address}/livez", timeout=600).status_code == 200
            assert '"content"' in next(filter(None, lines))  # answers of other models go on
        assert server.end() == 70
    [lost] = [line for line in server.log if line["event"] == "device lost"]
    assert "ignores what this process submits" in lost["reason"]


@pytest.mark.deep
def test_streams_of_other_models_end_with_an_error_when_their_five_seconds_are_over(
    tiny_model: TinyModel,
) -> None:
    good, bad = tiny_model("qwen3"), tiny_model("llama")
    with serving(
        str(good), str(bad), "--max-loaded-models", "2", program=failing(IGNORED, bad.name)
    ) as server:
        with streaming(server, good.name) as lines, begun(server, body(bad.name)):
            *_, last, done = filter(None, lines)
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "device_lost"
        assert done == "data: [DONE]"
        assert server.end() == 70

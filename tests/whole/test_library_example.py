"""The example programs in notes/ that have Greenroom inside run, and pass mypy in a client's project."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from textwrap import indent

import httpx2
import pytest

from greenroom.tests.support.reference.reference_tables import examples
from greenroom.tests.support.servers.bounded_waits import OutputLines, bounded, wait_until

NOTES = Path(__file__).parents[2] / "notes"
STARLETTE = "greenroom.tests.support.servers.starlette_program:app"
PROGRAMS = {
    "mounting_example": ("greenroom.notes.mounting_example 127.0.0.1:0", "/ai", "/hello/Ada"),
    "fastapi_example": ("uvicorn greenroom.notes.fastapi_example:app --port=0", "/llm", "/hello/Ada"),
    "starlette": (f"uvicorn {STARLETTE} --port=0", "/llm", "/hello/Ada"),
    "flask_example": ("greenroom.notes.flask_example 0", None, "/hello/Ada"),
    "asgi": ("hypercorn -w0 -k trio -b 127.0.0.1:0 greenroom.http.asgi:make_app()", "", "/livez"),
}
"""Modules and arguments, the prefix of Greenroom's own API, and a path of the program."""


def address_of(lines: OutputLines) -> str:
    while line := lines.next():
        if found := re.search(r"http://127\.0\.0\.1:[1-9]\d*", line):
            return found[0]
    raise AssertionError("the program has told no address")


@pytest.mark.deep
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_around_answers_is_left_midway_and_ends_without_a_thread(name: str) -> None:
    program, prefix, path = PROGRAMS[name]
    command = [sys.executable, "-m", "greenroom.tests.support.servers.host_state", *program.split()]
    pipe = subprocess.PIPE
    with bounded(subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True)) as process:
        lines = OutputLines(process.stdout)
        with httpx2.Client(base_url=address_of(lines), timeout=300) as http:
            own = http.get(path)
            assert (own.status_code, bool(own.text)) == (200, True)
            with http.stream("GET", path) as left:
                next(left.iter_bytes(1))
            if prefix is not None:
                body = {"model": "default", "messages": [{"role": "user", "content": "Hello!"}]}
                url = f"{prefix}/v1/chat/completions"
                assert (
                    http.post(url, json={**body, "max_tokens": 5}).json()["usage"]["completion_tokens"] == 5
                )
                endless = {**body, "stream": True, "ignore_eos": True, "max_tokens": 2_000}
                with http.stream("POST", url, json=endless) as left:
                    next(left.iter_lines())
                given_up = re.compile(r'request_success_total\{.*reason="abort".*\} [1-9]')
                wait_until(lambda: bool(given_up.search(http.get(f"{prefix}/metrics").text)))
        for _ in range(4):  # a server of others may lose the first, which Trio raises wherever it is
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
                break
        said = lines.rest()
        assert process.wait(60) in (0, 1, 130, -signal.SIGINT), said
    assert '{"left": []}\n' in said


@pytest.mark.deep
def test_examples_pass_mypy_as_strict_as_can_be_in_a_clients_project(tmp_path: Path) -> None:
    for path in NOTES.glob("*_example.py"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"))
    for name, code in examples().items():
        head = "from greenroom.api import *\n\n\nasync def example(system: System) -> None:\n"
        (tmp_path / f"{name}_in_docstring.py").write_text(head + indent(code, "    "))
    assert len([*tmp_path.iterdir()]) == 11
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", "."]
    environment = {**os.environ, "MYPYPATH": str(NOTES.parent / ".src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.returncode) == ("Success: no issues found in 11 source files\n", 0), done.stderr


@pytest.mark.deep
def test_the_example_of_asyncio_streams_and_ends_at_its_timeout() -> None:
    example = [sys.executable, str(NOTES / "asyncio_example.py")]
    done = subprocess.run(example, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r" tokens\nThe model has stopped\.\n.*server", done.stdout)


@pytest.mark.deep
def test_the_example_in_the_notes_prints_its_answers_and_no_log() -> None:
    done = subprocess.run(
        [sys.executable, NOTES / "embedding_example.py"], capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second, streamed, *_ = done.stdout.splitlines()
    answers = {line.partition(" ")[0]: line for line in (first, second)}
    assert len(answers["Hello!"]) > len("Hello! ") + 3
    assert "server" in answers["What"]
    assert streamed
    assert "actor=" not in done.stdout


def test_a_program_that_configures_structlog_hears_the_actors() -> None:
    code = (
        "import structlog, trio\n"
        "from greenroom.api import Settings, open_system\n"
        "structlog.configure(wrapper_class=structlog.make_filtering_bound_logger('info'))\n"
        "async def main():\n"
        "    async with open_system(Settings()):\n"
        "        pass\n"
        "trio.run(main)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert "started" in done.stdout
    assert "debug" not in done.stdout

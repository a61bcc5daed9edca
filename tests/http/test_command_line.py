"""The command line: help, version, and one-line errors."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from greenroom.tests.support.models.model_folders import make_model
from greenroom.tests.support.servers.server_processes import FULL_DISK, run_greenroom, serving


def test_help_names_every_command_with_examples_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "from greenroom.http.command_line import main\n"
        "try: main()\n"
        "finally: print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    for word in ("serve", "chat", "models", "--version", "Examples:"):
        assert word in done.stdout
    imported = done.stdout.splitlines()[-1].split()
    assert "click" in imported
    assert not {"trio", "structlog", "attrs", "rich", "tomllib", "mlx", "numpy"} & set(imported)


@pytest.mark.parametrize("command", ["serve", "chat", "models"])
def test_each_command_has_help_with_examples(command: str) -> None:
    done = run_greenroom(command, "--help")
    assert done.returncode == 0
    assert "Examples:" in done.stdout
    assert f"greenroom {command}" in done.stdout


def test_version_names_this_program_and_the_libraries_that_compute() -> None:
    own, mlx = metadata.version("greenroom"), metadata.version("mlx")
    [line] = run_greenroom("--version").stdout.splitlines()
    assert line.startswith(f"greenroom {own} (mlx {mlx}, mlx-lm ")
    lines = run_greenroom("--version", "-v").stdout.splitlines()
    assert lines == run_greenroom("-v", "--version").stdout.splitlines()
    assert line == f"{lines[0]} ({', '.join(lines[1:])})"
    assert all(re.fullmatch(r"[\w-]+ \d[\w.]*", each) for each in lines)
    pyproject = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())
    assert own == pyproject["project"]["version"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "No such command 'nope'"),
        (["serve", "--nope"], "No such option"),
        (
            ["serve", "--model-settings", "qwen:alias=gpt-4o"],
            "'gpt-4o' means 'qwen', which is none of the models here",
        ),
        (
            ["serve", "--profiles", "code:model=nowhere"],
            "profiles.\"code\": its model means 'nowhere', which is none of the models here",
        ),
        (["serve", "--profiles", "code:top_k=3"], 'profiles."code": its model is not named'),
        (
            ["serve", "--profiles", "x:model=default", "--model-settings", "default:alias=x"],
            "'x' is the name of an alias and of a profile: rename one of them",
        ),
        (["serve", "--default", "nowhere"], "default: it means 'nowhere'"),
        (["serve", "--allow-downloads", "--trust-remote-code"], "leave one of them out"),
        (["show", "nowhere"], "there is no folder 'nowhere' with a config.json"),
        (["serve", "--model-settings", "a:draft_model=./nowhere"], "there is no folder './nowhere'"),
        (["serve", "--listen", "11434"], "listen = '11434': must be HOST:PORT, for example 127.0.0.1:11434"),
        (["serve", "./nowhere"], "there is no folder './nowhere'"),
        (["serve", "mlx-community"], "(a hub id is OWNER/NAME)"),
        (["serve", __file__], "is a file, and a model is a folder"),
        (
            ["serve", "--prefix-cache-dir", "/dev/null/x"],
            "prefix_cache_dir = '/dev/null/x': cannot be written to",
        ),
        (["serve", "--prefix-cache-dir", __file__], "cannot be written to (File exists)"),
        (["serve", "--prefix-cache-dir", "/tmp", "--prefix-cache-bytes", "0"], "prefix_cache_bytes is 0"),
        (["serve", "--prefix-cache-disk-bytes", "9"], "at least 1,000,000"),
        (["chat", "./nowhere"], "there is no folder './nowhere'"),
        (["serve", "--speculation", "draft"], "draft_model must name the draft model"),
        (["serve", "--speculation", "lookup", "--draft-model", "."], "leave one of them out"),
        (["chat", "--draft-model", "./nowhere"], "draft_model: there is no folder './nowhere'"),
        (
            ["serve", "--host", "nowhere.invalid", "--insecure", "--port", "0"],
            "cannot listen on nowhere.invalid",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(arguments: list[str], message: str) -> None:
    done = run_greenroom(*arguments, *(["--log-level", "error"] if arguments[0] == "serve" else []))
    assert done.returncode == (1 if "--host" in arguments else 2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_two_folders_of_one_name_are_refused_beside_nothing_else(tmp_path: Path) -> None:
    one, other = (make_model(tmp_path / place / "qwen") for place in ("a", "b"))
    dirs = ("--model-dir", str(one.parent), "--model-dir", str(other.parent))
    done = run_greenroom("serve", *dirs, "--port", "0", "--log-level", "error")
    message = f"'qwen' is the name of two models, in '{one}' and in '{other}': rename one of them\n"
    assert (done.returncode, done.stderr) == (2, f"greenroom: {message}")


@pytest.mark.parametrize("arguments", [("--help",), ("models", "demo", "--json"), ("models", "demo")])
def test_output_that_cannot_be_written_is_told_in_one_line(arguments: tuple[str, ...]) -> None:
    done = run_greenroom(*arguments, redirected=FULL_DISK)
    assert (done.returncode, done.stderr) == (1, "greenroom: cannot write: File too large\n")


def test_a_taken_port_is_refused_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_greenroom("serve", "--port", str(port), "--log-level", "error")
    told = "greenroom: cannot listen on 127.0.0.1:{}: Address already in use by {} with --port\n"
    assert done.returncode == 1
    assert done.stderr == told.format(port, "another program: name another port")
    with serving() as server:
        port = int(server.address.rpartition(":")[2])
        for way in ((), ("--supervised",)):
            done = run_greenroom("serve", "--port", str(port), "--log-level", "error", *way)
            holder = f"greenroom (process {server.process.pid}): stop it, or name another port"
            assert done.stderr == told.format(port, holder)


def test_a_mistyped_command_names_the_one_that_was_meant() -> None:
    done = run_greenroom("srve")
    assert done.returncode == 2
    assert "No such command 'srve'. Did you mean 'serve'?" in done.stderr


def test_in_a_pipe_each_model_is_a_line_with_tabs() -> None:
    [line] = [
        line for line in run_greenroom("models").stdout.splitlines() if line.startswith("greenroom-demo")
    ]
    name, kind, architecture, context, size, folder = line.split("\t")
    assert (name, kind, architecture) == ("greenroom-demo", "text", "qwen3")
    assert context == "2,048"
    assert size.endswith(" MB")
    assert Path(folder).is_dir()

"""Lines of `greenroom connect`, pasted where they belong: into shells, settings files and programs."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import attrs
import pytest
import yaml

from greenroom.http.clients.connected import connected_names, lines_for, needed_tokens
from greenroom.http.clients.launched import LAUNCHED
from greenroom.http.clients.server_facts import ServerFacts
from greenroom.tests.support.servers.server_processes import run_greenroom, serving

SERVER = ServerFacts("http://127.0.0.1:8123", "org/model", "YOUR_KEY", 40_960, sees=True, thinks=True)
EXPORTS = {
    "openai": "OPENAI_BASE_URL=http://127.0.0.1:8123/v1",
    "anthropic": "ANTHROPIC_BASE_URL=http://127.0.0.1:8123",
    "ollama": "OLLAMA_HOST=http://127.0.0.1:8123",
    "goose": "OPENAI_HOST=http://127.0.0.1:8123",
    "open-webui": "OPENAI_API_BASE_URL=http://127.0.0.1:8123/v1",
}
YAML = ("librechat", "raycast", "litellm")
JSON = ("zed", "vscode")
PYTHON = ("langchain", "llama-index", "pydantic-ai", "openai-agents", "cohere")
JAVASCRIPT = ("ai-sdk",)
STEPS = ("xcode", "jetbrains", "home-assistant", "n8n")
"""Steps for people, which must do no harm to a shell either."""
# Interactive, as where people paste: only then does zsh take `#` for a command.
SHELLS = {"bash": ("--norc", "-i"), "zsh": ("-f", "-i", "-s"), "fish": ("--no-config", "-i")}
STAND_IN = '#!/bin/sh\nprintf "%s\\n" "home=$HOME" "arguments=$*"\nenv | sed "s/^/variable=/"\n'


def test_each_client_is_pasted_somewhere_below() -> None:
    kinds = (*EXPORTS, *YAML, *JSON, *PYTHON, *JAVASCRIPT, *STEPS, *LAUNCHED)
    assert sorted(kinds) == sorted(connected_names())


@pytest.mark.parametrize("name", [*EXPORTS, *STEPS, *LAUNCHED])
@pytest.mark.parametrize("shell", SHELLS)
def test_lines_for_a_shell_do_what_they_say_and_nothing_else(tmp_path: Path, shell: str, name: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    home, project, programs = (tmp_path / each for each in ("a home", "project", "bin"))
    for folder in (home, project, programs):
        folder.mkdir()
    program = LAUNCHED[name].program if name in LAUNCHED else "goose" if name == "goose" else "stand-in"
    (programs / program).write_text(STAND_IN)
    (programs / program).chmod(0o755)
    text = lines_for(name, SERVER) + ("" if name in LAUNCHED or name == "goose" else "\nstand-in")
    variables = {"HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}", "TERM": "dumb"}
    answer = subprocess.run(
        [shell, *SHELLS[shell]], input=f"{text}\necho home-afterwards=$HOME\nexit\n", text=True,
        env=variables, cwd=project, capture_output=True, timeout=60,
    )  # fmt: skip
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]", "", answer.stdout)
    assert f"home-afterwards={home}" in shown, answer.stderr
    assert list(project.iterdir()) == [], "a file in the project"
    own = {"fish", ".config", ".local", ".cache", ".bash_history"}  # what shells keep
    assert {path.name for path in home.iterdir()} - own <= {f".greenroom-{name}"}
    variables_seen = [line.partition("variable=")[2] for line in shown.splitlines() if "variable=" in line]
    if name in EXPORTS:
        assert EXPORTS[name] in variables_seen
    if name in LAUNCHED:
        folder = home / f".greenroom-{name}"
        started = LAUNCHED[name].make(SERVER, folder, ())
        assert {f"{each}={value}" for each, value in started.environment.items()} <= set(variables_seen)
        assert f"arguments={' '.join(started.command[1:])}" in shown
        for path, written in started.files.items():
            assert (folder / path).read_text() == f"{written}\n"


@pytest.mark.parametrize("name", YAML)
def test_settings_in_yaml_are_read(name: str) -> None:
    assert "org/model" in json.dumps(yaml.safe_load(lines_for(name, SERVER)))


@pytest.mark.parametrize("name", JSON)
def test_settings_in_json_are_read(name: str) -> None:
    text = "\n".join(line for line in lines_for(name, SERVER).splitlines() if not line.startswith("//"))
    assert "org/model" in json.dumps(json.loads(text if text.startswith("{") else f"{{{text}}}"))


@pytest.mark.parametrize("name", PYTHON)
def test_lines_in_python_are_read(name: str) -> None:
    assert ast.parse(lines_for(name, SERVER)).body


@pytest.mark.parametrize("name", JAVASCRIPT)
def test_lines_in_javascript_are_read(name: str, tmp_path: Path) -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed")
    (tmp_path / "lines.mjs").write_text(lines_for(name, SERVER))
    subprocess.run([node, "--check", tmp_path / "lines.mjs"], check=True, timeout=60)


@pytest.mark.deep
def test_a_context_that_is_too_short_is_told_before_the_client_starts(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho started\n")
    program.chmod(0o755)
    variables = {"PATH": f"{program.parent}:{os.environ['PATH']}", "XDG_DATA_HOME": str(tmp_path / "data")}
    sentence = "greenroom-demo has a context of 2,048 tokens, and Claude Code needs about 32,000"
    with serving():
        launched = run_greenroom("launch", "claude", **variables)
        assert (launched.returncode, launched.stdout) == (0, "started\n")
        assert sentence in launched.stderr
        connected = run_greenroom("connect", "claude")
        assert sentence in connected.stderr
        assert "needs about" not in run_greenroom("connect", "openai").stderr
    enough = attrs.evolve(SERVER, context=needed_tokens("claude"))
    assert enough.advice_for("Claude Code", needed_tokens("claude")) is None

"""`greenroom completion`: the shells' scripts, and the completions that they request from the program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from greenroom.http.command_table import COMMANDS
from greenroom.tests.support.servers.server_processes import run_greenroom


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    (tmp_path / "hub" / "models--org--large").mkdir(parents=True)
    return tmp_path / "hub"


def completions(words: str, cache: Path) -> list[str]:
    """Return the completions of the last word, as bash requests them."""
    asked = {"_GREENROOM_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = run_greenroom(**asked, HF_HUB_CACHE=str(cache))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_commands_options_and_models_are_completed(cache: Path) -> None:
    assert completions("greenroom ", cache) == [f"plain,{name}" for name in COMMANDS]
    begun = sorted(completions("greenroom se", cache))
    assert begun == ["plain,search", "plain,serve", "plain,service", "plain,setup"]
    assert "plain,--log-format" in completions("greenroom serve --log", cache)
    assert completions("greenroom serve --log-format j", cache) == ["plain,json"]
    assert completions("greenroom serve o", cache) == ["dir,o", "plain,org/large"]
    assert completions("greenroom chat org/l", cache) == ["dir,org/l", "plain,org/large"]
    assert completions("greenroom speak Hello -m org", cache) == ["dir,org", "plain,org/large"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_the_program(shell: str) -> None:
    done = run_greenroom("completion", shell)
    assert done.returncode == 0
    assert f"_GREENROOM_COMPLETE={shell}_complete" in done.stdout
    assert "greenroom" in done.stdout


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    program = tmp_path / "greenroom"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m greenroom.http.command_line "$@"\n')
    program.chmod(0o755)
    script = (
        f'eval "$({program} completion bash)"\n'
        "COMP_WORDS=(greenroom trans); COMP_CWORD=1\n"
        "_greenroom_completion greenroom\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [bash, "--norc", "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PATH": path},
    )
    assert done.stdout == "transcribe\n"

"""`greenroom service`: files that systemd and launchd accept, and the commands that they are given."""

from __future__ import annotations

import configparser
import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from greenroom.http.supervision.services import (
    LaunchdAgent,
    SupervisedProgram,
    SystemdUnit,
    supervised_program,
)
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.server_processes import run_greenroom

HOSTILE = ("my model", 'quote"d', "back\\slash", "50%n", "$HOME", "${HOME}", "line\nbreak", "; rm", "ä", "'")
"""Words that systemd would change if they were not quoted."""


def program(*arguments: str, folder: Path | None = None) -> SupervisedProgram:
    variables = (("GREENROOM_DB", "%h $HOME \"'\\"),)
    return SupervisedProgram((sys.executable, *arguments), folder or Path.cwd(), variables, 40)


def read_unit(content: bytes) -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(content.decode())
    return unit["Service"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
@pytest.mark.parametrize("words", [(), HOSTILE], ids=["plain", "hostile"])
def test_systemd_accepts_the_unit(words: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "50% of it"
    folder.mkdir()
    unit = tmp_path / "greenroom.service"
    unit.write_bytes(SystemdUnit().content(program(*words, folder=folder)))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "SYSTEMD_LOG_LEVEL": "warning"},
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_the_unit_starts_the_program_with_its_words_as_they_are() -> None:
    line = read_unit(SystemdUnit().content(program(*HOSTILE)))["ExecStart"]
    # Double quotes mean the same here and there, but for systemd's own escapes (systemd.service(5)).
    unescaped = line.replace("$$", "$").replace("%%", "%").replace("\\n", "\n")
    assert shlex.split(unescaped) == [sys.executable, *HOSTILE]


def test_the_unit_restarts_a_parent_that_failed_and_leaves_it_time_to_drain() -> None:
    content = SystemdUnit().content(supervised_program(("org/name",), Settings().shutdown_timeout))
    service = read_unit(content)
    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"].split() == ["1", "2"]
    assert int(service["TimeoutStopSec"]) > Settings().shutdown_timeout
    assert int(service["WatchdogSec"]) > 10
    assert "--supervised" in service["ExecStart"]
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_launchd_gets_the_same_program() -> None:
    agent = plistlib.loads(LaunchdAgent().content(program(*HOSTILE)))
    assert agent["ProgramArguments"] == [sys.executable, *HOSTILE]
    assert agent["EnvironmentVariables"] == {"GREENROOM_DB": "%h $HOME \"'\\"}
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert agent["ExitTimeOut"] == 40
    assert agent["ProcessType"] == "Interactive"


def test_launchd_replaces_an_agent_by_taking_it_out_first() -> None:
    agent, user = LaunchdAgent(), os.getuid()
    assert (
        agent.replace_commands == agent.stop_commands == (("launchctl", "bootout", f"gui/{user}/greenroom"),)
    )
    assert agent.start_commands == (("launchctl", "bootstrap", f"gui/{user}", str(agent.path)),)
    assert agent.logs_command(5, True) == ("tail", "-n", "5", "-F", str(agent.log))
    assert agent.status_command == ("launchctl", "print", f"gui/{user}/greenroom")


def test_secrets_of_the_environment_stay_out_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("GREENROOM_PORT", "9000")
    monkeypatch.setenv("HF_HOME", "/models")
    found = supervised_program((), 30.0)
    assert ("GREENROOM_PORT", "9000") in found.variables
    assert ("HF_HOME", "/models") in found.variables
    assert "hf_secret" not in repr(found)


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Return variables of a home whose systemctl and journalctl only note how they are called."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("systemctl", "journalctl", "launchctl", "tail"):
        tool = tools / name
        tool.write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/calls\nexit ${{TOOL_STATUS:-0}}\n')
        tool.chmod(0o755)
    return {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PATH": f"{tools}:{os.environ['PATH']}",
    }


@pytest.mark.skipif(sys.platform == "darwin", reason="launchd's commands are tested without it")
def test_a_service_is_installed_replaced_shown_and_removed(home: dict[str, str]) -> None:
    unit = Path(home["XDG_CONFIG_HOME"], "systemd", "user", "greenroom.service")
    calls = Path(home["HOME"], "calls")
    first = run_greenroom("service", "install", "org/name", "--port", "9000", **home)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith(f"Wrote {unit}\n")
    assert unit.stat().st_mode & 0o777 == 0o600
    assert '"--supervised" "org/name" "--port" "9000"' in unit.read_text()
    again = run_greenroom("service", "install", "--port", "9001", **home)
    assert again.stdout.startswith(f"Replaced {unit}\n")
    assert '"9001"' in unit.read_text()
    assert run_greenroom("service", "status", TOOL_STATUS="3", **home).returncode == 3
    assert run_greenroom("service", "logs", "-n", "5", **home).returncode == 0
    assert run_greenroom("service", "uninstall", **home).returncode == 0
    assert not unit.exists()
    start = ["daemon-reload", "enable greenroom.service", "restart --no-block greenroom.service"]
    assert calls.read_text().splitlines() == [
        *[f"systemctl --user {words}" for words in (*start, *start)],
        "systemctl --user status --no-pager greenroom.service",
        "journalctl --user --user-unit=greenroom.service --output=cat --lines=5 --no-pager",
        "systemctl --user disable --now greenroom.service",
        "systemctl --user daemon-reload",
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("install", "--port", "many"), 2, "--port"),
        (("install", "--nonsense"), 2, "--nonsense"),
        (("install", "--config", "/nowhere.toml"), 2, "/nowhere.toml"),
        (("status",), 1, "no service is installed"),
        (("uninstall",), 1, "no service is installed"),
        (("logs",), 1, "no service is installed"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line_and_writes_nothing(
    arguments: tuple[str, ...], status: int, message: str, home: dict[str, str]
) -> None:
    done = run_greenroom("service", *arguments, **home)
    assert done.returncode == status
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path(home["XDG_CONFIG_HOME"]).exists()


@pytest.mark.skipif(sys.platform == "darwin", reason="launchd's commands are tested without it")
def test_a_start_that_fails_is_told_with_its_command(home: dict[str, str]) -> None:
    done = run_greenroom("service", "install", TOOL_STATUS="1", **home)
    assert done.returncode == 1
    assert done.stderr == "greenroom: `systemctl --user daemon-reload`: exit status 1\n"


def test_no_key_gets_into_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GREENROOM_API_KEY", "GREENROOM_SERVER_API_KEY"):
        monkeypatch.setenv(name, "secret-key")
    monkeypatch.setenv("GREENROOM_PORT", "9000")
    made = supervised_program((), 10.0)
    assert dict(made.variables)["GREENROOM_PORT"] == "9000"
    assert b"secret-key" not in SystemdUnit().content(made) + LaunchdAgent().content(made)
    refused = run_greenroom("service", "install", "--api-key", "flag-key", XDG_CONFIG_HOME=str(tmp_path))
    assert (refused.returncode, "--api-key-file" in refused.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []

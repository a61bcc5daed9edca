"""The first model: what is offered to a machine, what is fetched, and what the settings file then says."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from greenroom.http.commands.setup import SUGGESTED, suggestions
from greenroom.http.settings.sources import BadSettingError, write_settings
from greenroom.schemas.models.model_description import MachineReport
from greenroom.tests.support.servers.hub_server import Hub, open_hub
from greenroom.tests.support.servers.server_processes import run_greenroom, serving
from greenroom.tests.support.servers.terminal import Terminal

DEMO = Path(__file__).resolve().parents[3] / "engine" / "demo" / "model"
ROOM = {memory: room for memory, (room, _) in SUGGESTED.items()}
FIRST = {memory: models[0].hub_id for memory, (_, models) in SUGGESTED.items()}
SMALLEST = "mlx-community/Llama-3.2-3B-Instruct-4bit"


@pytest.mark.parametrize("memory", SUGGESTED)
def test_a_gpu_is_offered_its_row_and_a_cpu_the_smallest_first(memory: int) -> None:
    for share in (1.0, 1.4):
        models = suggestions(MachineReport("gpu Apple M4"), int(ROOM[memory] * share * 1e9))
        assert models == SUGGESTED[memory][1]
    assert suggestions(MachineReport("cpu"), int(ROOM[memory] * 1e9))[0].hub_id == SMALLEST


def test_nothing_is_offered_that_does_not_fit() -> None:
    assert suggestions(MachineReport("gpu"), int(2e9)) == ()
    [only] = suggestions(MachineReport("gpu"), int(2.2e9))
    assert only.hub_id == SMALLEST


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Run a hub with all suggested models but one, and an empty home."""
    for name in ("HF_HUB_CACHE", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    files = {path.name: path.read_bytes() for path in DEMO.iterdir()}
    models = [model.hub_id for _, row in SUGGESTED.values() for model in row]
    with open_hub({model: files for model in models if model != "mlx-community/Qwen3-14B-4bit"}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


def settings_of(home: Path) -> dict[str, object]:
    return tomllib.loads((home / "XDG_CONFIG_HOME" / "greenroom" / "settings.toml").read_text())


@pytest.mark.parametrize(
    "memory", [pytest.param(8, marks=pytest.mark.deep), 16, pytest.param(64, marks=pytest.mark.deep)]
)
def test_a_server_offers_fetches_and_remembers_the_model_of_this_machine(
    hub: Hub, tmp_path: Path, memory: int
) -> None:
    variables = {"GREENROOM_MEMORY_BYTES": f"{ROOM[memory]}GB"}
    with closing(Terminal("serve", "--port", "0", **variables)) as terminal:
        offered = terminal.read_until("Enter is 1] ")
        names = re.findall(
            r"^  (\w)  (mlx-community/\S+) +(\S+ MB), less than a minute at \S+ MB/s", offered, re.M
        )
        row = [model.hub_id for model in SUGGESTED[memory][1]]
        assert [name for _, name, _ in names] == [SMALLEST, *(name for name in row if name != SMALLEST)]
        assert "Here models may have" in offered
        assert "the built-in demo model" in offered
        chosen = next(key for key, name, _ in names if name == FIRST[memory])
        terminal.write(f"x{chosen}")
        told = terminal.read_until("Ctrl-C stops.")
        assert f"{FIRST[memory]} is not on this machine: downloading" in told
        assert f"Greenroom serves {FIRST[memory]} on" in told
        terminal.write("\x03")
        assert terminal.end() == 0
    assert settings_of(tmp_path) == {"models": [FIRST[memory]]}
    asked = len(hub.requests)
    with closing(Terminal("serve", "--port", "0", **variables)) as terminal:
        told = terminal.read_until("Ctrl-C stops.")
        assert "Fetch which?" not in terminal.shown
        terminal.write("\x03")
        assert terminal.end() == 0
    assert len(hub.requests) == asked


@pytest.mark.deep
def test_a_chat_offers_too_and_the_demo_is_not_remembered(hub: Hub, tmp_path: Path) -> None:
    with closing(Terminal("chat")) as terminal:
        terminal.read_until("Enter is 1] ")
        terminal.write("d")
        terminal.read_until(">>> ")
        terminal.write("\x04")
        assert terminal.end() == 0
    assert not (tmp_path / "XDG_CONFIG_HOME").exists()
    with closing(Terminal("chat")) as terminal:
        terminal.read_until("Enter is 1] ")
        terminal.write("\x03")
        assert terminal.end() == 130


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--demo"], {}),
        ([], {"HF_HUB_OFFLINE": "1"}),
        ([], {"HF_ENDPOINT": "http://127.0.0.1:9"}),
        ([], {"GREENROOM_MEMORY_BYTES": "1GB"}),
    ],
)
def test_nobody_is_asked_with_demo_or_without_a_hub(
    hub: Hub, tmp_path: Path, arguments: list[str], variables: dict[str, str]
) -> None:
    with closing(Terminal("serve", "--port", "0", *arguments, **variables)) as terminal:
        told = terminal.read_until("no-store-responses")
        assert "Greenroom serves the built-in demo model" in told
        assert "setup, or " in told
        terminal.write("\x03")
        assert terminal.end() == 0
        assert "Fetch which?" not in terminal.shown
    assert hub.requests == []
    assert not (tmp_path / "XDG_CONFIG_HOME").exists()


def test_without_a_terminal_the_demo_is_served_as_ever(hub: Hub) -> None:
    with serving() as server:
        assert server.log[-1]["models"] == ["greenroom-demo"]
    refused = run_greenroom("setup")
    assert (refused.returncode, "call it at a terminal" in refused.stderr) == (2, True)
    assert hub.requests == []


def test_demo_goes_before_the_settings_and_excludes_a_model(hub: Hub, tmp_path: Path) -> None:
    write_settings(None, {"models": ["org/other"]})
    with serving("--demo") as server:
        assert server.log[-1]["models"] == ["greenroom-demo"]
    assert run_greenroom("chat", "--demo", stdin="Who are you?").stdout.startswith("I am Greenroom's")
    for command in ("serve", "chat"):
        refused = run_greenroom(command, "org/other", "--demo")
        assert (refused.returncode, "name no other" in refused.stderr) == (2, True)


def test_setup_asks_its_three_questions(hub: Hub, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('# mine\nmodels = ["org/old"]  # before\nport = 9000\n\n[store]\nresponses = false\n')
    (tmp_path / "shelf").mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    called = tmp_path / "called"
    for name in ("systemctl", "loginctl"):
        (programs / name).write_text(f'#!/bin/sh\necho "$@" >>{called}\n')
        (programs / name).chmod(0o755)
    with closing(Terminal("setup", "--config", str(file), PATH=f"{programs}:/usr/bin:/bin")) as terminal:
        assert "Now it serves org/old." in terminal.read_until("Choose another model? [y/n, Enter is n] ")
        terminal.write("y")
        terminal.read_until("Enter is 1] ")
        terminal.write("\r")
        terminal.read_until("Folder of models that you have already [none]: ")
        terminal.write(f"{tmp_path}/nowhere\n")
        assert "There is no folder" in terminal.read_until("already [none]: ")
        terminal.write(f"{tmp_path}/shelf\n")
        terminal.read_until("at every login? [y/n, Enter is n] ")
        terminal.write("y")
        assert terminal.end() == 0
    assert file.read_text() == (
        f'model_dir = ["{tmp_path}/shelf"]\n# mine\nmodels = ["{SMALLEST}"]\nport = 9000\n\n'
        "[store]\nresponses = false\n"
    )
    assert "enable" in called.read_text()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'models = ["a/b"]\n'),
        ("# note\n[store]\nresponses = false\n", 'models = ["a/b"]\n# note\n[store]\nresponses = false\n'),
        ('models = [\n  "x",\n  "y",\n]\nport = 1\n', 'models = ["a/b"]\nport = 1\n'),
        ("models = 'x'", 'models = ["a/b"]\n'),
        ("[model.x]\nalias = 'models'\n", "models = [\"a/b\"]\n[model.x]\nalias = 'models'\n"),
    ],
)
def test_a_settings_file_keeps_all_else(tmp_path: Path, before: str, after: str) -> None:
    (tmp_path / "target.toml").write_text(before)
    (tmp_path / "link.toml").symlink_to(tmp_path / "target.toml")
    write_settings(tmp_path / "link.toml", {"models": ["a/b"]})
    assert (tmp_path / "link.toml").is_symlink()
    assert (tmp_path / "target.toml").read_text() == after
    write_settings(tmp_path / "link.toml", {"models": []})
    assert "models = [" not in (tmp_path / "target.toml").read_text()


@pytest.mark.parametrize("text", ["models = [", '"models" = ["x"]\n'])
def test_a_file_that_cannot_be_changed_is_left_with_the_line_to_write(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    with pytest.raises(BadSettingError, match=r'write into it models = \["a/b"\]'):
        write_settings(file, {"models": ["a/b"]})
    assert file.read_text() == text

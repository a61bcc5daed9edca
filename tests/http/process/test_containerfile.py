"""The container file names what the project has: its wheel, extras, command, port and variables."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

from click.testing import CliRunner

from greenroom.http.command_line import greenroom
from greenroom.http.command_table import COMMANDS
from greenroom.http.settings.check_value import FIELDS
from greenroom.http.settings.sources import PREFIX
from greenroom.schemas.settings.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILE = (ROOT / "Containerfile").read_text()


def steps(name: str) -> list[str]:
    joined = FILE.replace("\\\n", " ")
    return [line.removeprefix(f"{name} ") for line in joined.splitlines() if line.startswith(f"{name} ")]


def test_it_installs_the_wheel_of_this_project_with_an_extra_that_it_has() -> None:
    (copied,) = steps("COPY")
    wheel = f"{PROJECT['name']}-*.whl"
    assert copied == f"{wheel} /tmp/"
    (install,) = [step for step in steps("RUN") if "pip install" in step]
    assert f"$(echo /tmp/{wheel})[${{ACCELERATOR}}]" in install
    (accelerator,) = steps("ARG")
    assert accelerator.removeprefix("ACCELERATOR=") in PROJECT["optional-dependencies"]
    named = re.findall(r"cuda\d+", FILE)
    assert set(named) <= set(PROJECT["optional-dependencies"])


def test_it_starts_a_command_that_there_is_on_the_port_that_it_exposes() -> None:
    assert steps("ENTRYPOINT") == [f'["{next(iter(PROJECT["scripts"]))}"]']
    assert steps("CMD") == ['["serve"]']
    assert "serve" in COMMANDS
    assert steps("EXPOSE") == [str(Settings().port)]
    assert CliRunner().invoke(greenroom, ["serve", "--help"]).exit_code == 0
    for variable in re.findall(rf"{PREFIX}[A-Z_]+", FILE):
        assert variable.removeprefix(PREFIX).lower() in FIELDS


def test_what_it_fetches_and_stores_lies_in_the_volume_of_a_user_who_is_not_root() -> None:
    (volume,) = steps("VOLUME")
    folders = dict(part.split("=", 1) for line in steps("ENV") for part in shlex.split(line))
    for variable in ("HF_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        assert folders[variable].startswith(f"{volume}/")
    (user,) = steps("USER")
    made = next(step for step in steps("RUN") if "useradd" in step)
    assert re.search(rf"useradd --uid 1\d{{3}} --create-home {user}\b", made)
    assert re.search(rf"--owner {user} --group {user} --mode 700 {volume}$", made)

"""The guide's launchd and systemd examples are valid, and restart the server for the right exit statuses."""

from __future__ import annotations

import configparser
import plistlib
import re
from pathlib import Path

from greenroom.schemas.settings.settings import Settings

GUIDE = (Path(__file__).resolve().parents[2] / "notes" / "guide.md").read_text()
SECTION = GUIDE.partition("## As a service")[2].partition("\n## ")[0]


def example(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)
    return str(found)


def test_launchd_restarts_it_and_leaves_it_time_to_drain() -> None:
    service = plistlib.loads(example("xml").encode())
    assert service["ProgramArguments"][1:2] == ["serve"]
    assert service["KeepAlive"] == {"SuccessfulExit": False}
    assert service["ProcessType"] == "Interactive"
    assert service["SoftResourceLimits"]["NumberOfFiles"] >= 4096
    assert service["ExitTimeOut"] > Settings().shutdown_timeout


def test_systemd_restarts_it_where_a_new_process_helps() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(example("ini"))
    service = unit["Service"]
    assert service["RestartForceExitStatus"].split() == ["70", "75"]
    assert service["Restart"] == "no", "a bad setting stays one"
    assert int(service["LimitNOFILE"]) >= 4096
    assert int(service["TimeoutStopSec"]) > Settings().shutdown_timeout

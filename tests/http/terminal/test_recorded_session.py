"""The recorded sessions are what happens at a terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

NOTES = Path(__file__).resolve().parents[3] / "notes"


@pytest.mark.soak
@pytest.mark.parametrize(("words", "file"), [([], "terminal-session.txt"), (["first"], "first-session.txt")])
def test_a_recorded_session_is_repeated_word_for_word(words: list[str], file: str) -> None:
    script = [sys.executable, str(NOTES / "terminal_session.py"), *words]
    repeated = subprocess.run(script, capture_output=True, text=True, timeout=600)
    assert repeated.returncode == 0, repeated.stderr
    assert _without_speeds(repeated.stdout) == _without_speeds((NOTES / file).read_text())


def _without_speeds(session: str) -> str:
    without_bars = re.sub(r"downloading ━.*\n?", "", session)
    return re.sub(r"about \d+ minutes? at |\d+ tokens/s|[\d.]+ [kM]B/s", "…", without_bars)

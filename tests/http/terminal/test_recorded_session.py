"""The recorded session of `greenroom chat` beside a server is what happens at a terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

NOTES = Path(__file__).resolve().parents[3] / "notes"


@pytest.mark.soak
def test_the_recorded_session_is_repeated_word_for_word() -> None:
    script = [sys.executable, str(NOTES / "terminal_session.py")]
    repeated = subprocess.run(script, capture_output=True, text=True, timeout=600)
    assert repeated.returncode == 0, repeated.stderr
    assert _without_speeds(repeated.stdout) == _without_speeds((NOTES / "terminal-session.txt").read_text())


def _without_speeds(session: str) -> str:
    return re.sub(r"\d+ tokens/s", "… tokens/s", session)

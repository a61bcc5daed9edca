"""The program in notes/ that uses Greenroom without its server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "notes" / "embedding_example.py"


def test_the_example_in_the_notes_prints_both_answers() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    answers = {line.partition(" ")[0]: line for line in done.stdout.splitlines()}
    assert len(answers["Hello!"]) > len("Hello! ") + 3
    assert "server" in answers["What"]

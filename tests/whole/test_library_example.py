"""The example program in notes/ that uses Greenroom as a library, without its server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "notes" / "embedding_example.py"


@pytest.mark.deep
def test_the_example_in_the_notes_prints_its_answers_and_no_log() -> None:
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    first, second, streamed, *_ = done.stdout.splitlines()
    answers = {line.partition(" ")[0]: line for line in (first, second)}
    assert len(answers["Hello!"]) > len("Hello! ") + 3
    assert "server" in answers["What"]
    assert streamed
    assert "actor=" not in done.stdout


def test_a_program_that_configures_structlog_hears_the_actors() -> None:
    code = (
        "import structlog, trio\n"
        "from greenroom.api import Settings, open_system\n"
        "structlog.configure(wrapper_class=structlog.make_filtering_bound_logger('info'))\n"
        "async def main():\n"
        "    async with open_system(Settings()):\n"
        "        pass\n"
        "trio.run(main)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert "started" in done.stdout
    assert "debug" not in done.stdout

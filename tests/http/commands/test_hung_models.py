"""Commands with a hung model end at once on a signal, and by themselves after the hang timeout."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Literal

import pytest

from greenroom.tests.support.media.recordings import noise, write_recording
from greenroom.tests.support.servers.hung_commands import HANGS, hanging, hung_command

COMMANDS = ("chat", "embed", "speak", "transcribe")


@pytest.fixture
def arguments(command: str, request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Return a command's arguments; output files are in `out`."""
    (tmp_path / "out").mkdir()
    model = request.getfixturevalue
    match command:
        case "chat":
            return ["chat", str(model("tiny_model")("qwen3"))]
        case "embed":
            return ["embed", str(model("tiny_encoder")("bert")), "Hello"]
        case "speak":
            output = str(tmp_path / "out" / "hello.wav")
            return ["speak", "Hello", "-m", str(model("tiny_pocket")), "-o", output]
    recording = write_recording(tmp_path / "speech.wav", noise(1))
    output = str(tmp_path / "out" / "speech.srt")
    return ["transcribe", str(recording), "-m", str(model("tiny_whisper")), "-o", output]


def check_ended_by(number: signal.Signals, process: subprocess.Popen[str], folder: Path) -> None:
    process.send_signal(number)
    out, told = process.communicate(timeout=300)
    assert (process.returncode, out) == (128 + number, "")
    assert "Traceback" not in told
    assert "Fatal" not in told
    assert not list((folder / "out").iterdir())


@pytest.mark.deep
@pytest.mark.parametrize("command", ["speak"])
def test_a_signal_ends_a_command_and_its_file(arguments: list[str], tmp_path: Path) -> None:
    with hanging("step", *arguments) as process:
        assert [path.suffix for path in (tmp_path / "out").iterdir()] == [".part"]
        check_ended_by(signal.SIGTERM, process, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["load", "step"])
@pytest.mark.parametrize("command", COMMANDS)
def test_signals_end_every_command(
    arguments: list[str], where: Literal["load", "step"], number: signal.Signals, tmp_path: Path
) -> None:
    with hanging(where, *arguments, stdin="Hello") as process:
        check_ended_by(number, process, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("where", ["load", "step"])
@pytest.mark.parametrize("command", COMMANDS)
def test_what_hangs_is_told_and_ends_the_command(
    arguments: list[str], where: Literal["load", "step"], tmp_path: Path
) -> None:
    command = hung_command(where, *arguments, hang_timeout=8)
    done = subprocess.run(command, input="Hello", capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (1, "")
    assert HANGS in done.stderr
    [told] = [line for line in done.stderr.splitlines() if line.startswith("greenroom: ")]
    assert "has given no sign of life for 8 s" in told
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "out").iterdir())

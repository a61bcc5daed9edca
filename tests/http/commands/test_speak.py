"""`greenroom speak`: a text into a file."""

from __future__ import annotations

import wave
from pathlib import Path

import pytest

from greenroom.tests.support.audio_files import decode
from greenroom.tests.support.server_processes import run_greenroom


def test_a_text_is_spoken_into_a_file(tiny_pocket: Path, tmp_path: Path) -> None:
    file = tmp_path / "hello.wav"
    done = run_greenroom(
        "speak", "-", "-o", str(file), "-m", str(tiny_pocket), "--speed", "2", stdin="Hello.\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with wave.open(str(file)) as header:
        assert header.getnframes() / header.getframerate() == pytest.approx(1.48, rel=0.05)
    assert decode(file.read_bytes()).codec == "pcm_s16le"
    assert [path.name for path in tmp_path.iterdir()] == ["hello.wav"]


def test_what_cannot_be_spoken_leaves_no_file(tiny_pocket: Path, tmp_path: Path) -> None:
    file = tmp_path / "hello.mp3"
    voice = run_greenroom(
        "speak", "Hi", "-o", str(file), "-m", str(tiny_pocket), "--voice", "nobody", stdin=""
    )
    assert voice.returncode == 1
    assert "it has alba, default" in voice.stderr
    assert not list(tmp_path.iterdir())


def test_an_extension_that_says_nothing_is_refused(tmp_path: Path) -> None:
    form = run_greenroom("speak", "Hi", "-o", str(tmp_path / "hello.txt"), stdin="")
    assert form.returncode == 2
    assert "--format" in form.stderr
    assert len(form.stderr.splitlines()) == 1

"""`greenroom speak` with a file as output."""

from __future__ import annotations

import os
import wave
from pathlib import Path

import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.media.audio_files import decode
from greenroom.tests.support.servers.server_processes import run_greenroom
from greenroom.tests.support.servers.shared_servers import Shared


@pytest.fixture
def url(tiny_pocket: Path, shared: Shared) -> tuple[str, ...]:
    return ("--url", shared(Settings(models=(str(tiny_pocket),))).server.address)


@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_a_text_is_spoken_into_a_file(
    tiny_pocket: Path, tmp_path: Path, url: tuple[str, ...], alone: bool
) -> None:
    file = tmp_path / "hello.wav"
    command = ("speak", "-", "-o", str(file), "-m", str(tiny_pocket), "--speed", "2")
    done = run_greenroom(*command, *(("--local",) if alone else url), stdin="Hello.\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with wave.open(str(file)) as header:
        assert header.getnframes() / header.getframerate() == pytest.approx(1.48, rel=0.05)
    assert decode(file.read_bytes()).codec == "pcm_s16le"
    assert [path.name for path in tmp_path.iterdir()] == ["hello.wav"]


def test_what_cannot_be_spoken_leaves_no_file(
    tiny_pocket: Path, tmp_path: Path, url: tuple[str, ...]
) -> None:
    file = tmp_path / "hello.mp3"
    command = ("speak", "Hi", "-o", str(file), "-m", str(tiny_pocket), "--voice", "nobody")
    voice = run_greenroom(*command, *url)
    assert voice.returncode == 1
    assert "it has alba, default" in voice.stderr
    assert not list(tmp_path.iterdir())


def test_what_stands_in_the_place_of_a_file_stays(
    tiny_pocket: Path, tmp_path: Path, url: tuple[str, ...]
) -> None:
    link, pipe = tmp_path / "link.wav", tmp_path / "pipe.opus"  # a pipe's buffer holds the whole file
    link.symlink_to("hello.wav")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for output in (link, pipe):
        done = run_greenroom("speak", "Hi", "-o", str(output), "-m", str(tiny_pocket), *url)
        assert (done.returncode, done.stderr) == (0, "")
    assert os.read(reader, 4) == b"OggS"
    os.close(reader)
    assert link.readlink() == Path("hello.wav")
    assert (tmp_path / "hello.wav").read_bytes()[:4] == b"RIFF"
    assert pipe.is_fifo()


def test_what_cannot_be_written_is_told_before_anything_is_spoken(tiny_pocket: Path, tmp_path: Path) -> None:
    nobody_reads = tmp_path / "pipe.wav"
    os.mkfifo(nobody_reads)
    for output, named in (
        (tmp_path / "nowhere" / "hello.wav", "No such file or directory"),
        (tmp_path / f"{'x' * 300}.wav", "File name too long"),
        (nobody_reads, "No such device or address"),
    ):
        refused = run_greenroom("speak", "Hi", "-o", str(output), "-m", str(tiny_pocket))
        assert refused.returncode == 1
        [line] = refused.stderr.splitlines()
        assert named in line


def test_a_recording_is_a_file(tmp_path: Path) -> None:
    for command in (("transcribe",), ("speak", "Hi", "-o", "a.wav", "--ref-audio")):
        refused = run_greenroom(*command, "/dev/zero")
        assert refused.returncode == 2
        [line] = refused.stderr.splitlines()
        assert "'/dev/zero' is not a regular file" in line


def test_an_extension_that_says_nothing_is_refused(tmp_path: Path) -> None:
    form = run_greenroom("speak", "Hi", "-o", str(tmp_path / "hello.txt"), stdin="")
    assert form.returncode == 2
    assert "--format" in form.stderr
    assert len(form.stderr.splitlines()) == 1

"""Only the first audio track of a movie is opened."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from greenroom.engine.media.file_structure import is_mp4, unneeded_atoms
from greenroom.engine.media.recordings import BoundedFile, OpenedRecording
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.hostile import movies
from greenroom.tests.support.media.recordings import RATE, Sound, silence, write_recording

TONES = (440, 880)


def tone(pitch: int) -> Sound:
    return (np.sin(2 * np.pi * pitch * np.arange(2 * RATE) / RATE) * 0.5).astype(np.float32)


def film(path: Path, kind: str, movflags: str, *, picture: bool) -> Path:
    """Write a movie with video first and two audio tracks."""
    options = {"movflags": movflags} if movflags else {}
    with av.open(str(path), "w", format=kind, options=options) as output:
        streams: list[Any] = [output.add_stream("mpeg4", rate=5)]
        if picture:
            streams.append(output.add_stream("mjpeg", rate=1))
            streams[-1].disposition = av.stream.Disposition.attached_pic
        for stream, form in zip(streams, ("yuv420p", "yuvj420p"), strict=False):
            stream.width = stream.height = 64
            stream.pix_fmt = form
        sounds: list[Any] = [output.add_stream("aac", rate=RATE, layout="mono") for _ in TONES]
        shown = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 90, np.uint8), format="rgb24")
        for stream in reversed(streams):
            output.mux([*stream.encode(shown), *stream.encode(None)])
        for stream, pitch in zip(sounds, TONES, strict=True):
            frame = av.AudioFrame.from_ndarray(tone(pitch)[None], "flt", "mono")
            frame.sample_rate = RATE
            output.mux([*stream.encode(frame), *stream.encode(None)])
    return path


@pytest.mark.parametrize(
    ("kind", "movflags", "picture"),
    [
        ("mp4", "", False),
        ("mp4", "faststart", True),
        ("mov", "", False),
        ("mp4", "frag_keyframe+empty_moov+default_base_moof+separate_moof", False),
    ],
)
def test_the_first_track_of_sound_is_heard(kind: str, movflags: str, picture: bool, tmp_path: Path) -> None:
    path = film(tmp_path / "film", kind, movflags, picture=picture)
    with av.open(str(path)) as whole:
        assert len(whole.streams) == 3 + picture
        wanted = [frame.to_ndarray()[0] for frame in whole.decode(audio=0)]
    recording = OpenedRecording(path, RATE)
    heard = np.concatenate(list(recording.blocks()))
    recording.close()
    assert np.allclose(heard, np.clip(np.concatenate(wanted), -1, 1), atol=1e-6)
    assert np.argmax(np.abs(np.fft.rfft(heard))) * RATE / len(heard) == pytest.approx(TONES[0], rel=0.01)


def test_a_file_reads_alike_in_pieces_of_any_size() -> None:
    data = movies.promising(100, tracks=3)
    file = BoundedFile(data)
    assert is_mp4(file)
    file.strip_atoms(unneeded_atoms(file))
    file.seek(0)
    whole = file.read(len(data))
    assert (len(whole), whole.count(b"trak"), whole.count(b"free")) == (len(data), 1, 2)
    for size in (1, 3, 7, 100):
        file.seek(0)
        assert b"".join(iter(lambda size=size: file.read(size), b"")) == whole  # type: ignore[misc]


@pytest.mark.parametrize("cut", range(0, 120, 7))
def test_a_file_that_ends_anywhere_is_no_error(cut: int) -> None:
    data = movies.promising(100)
    file = BoundedFile(data[: len(data) - cut * 7])
    assert isinstance(unneeded_atoms(file), tuple)


class CountedFile(BoundedFile):
    """A file that counts its reads."""

    reads = 0

    def read(self, size: int) -> bytes:
        self.reads += 1
        return super().read(size)


def test_of_many_boxes_few_are_looked_at() -> None:
    """Each of 1,000 tracks begins with 1,000 boxes; FFmpeg rejects the rest."""
    filled = b"\0\0\x1f\x48trak" + b"\0\0\0\x08free" * 1_000
    data = b"\0\0\0\x08ftyp" + struct.pack(">I", 8 + 1_000 * len(filled)) + b"moov" + filled * 1_000
    file = CountedFile(data)
    assert unneeded_atoms(file)
    assert file.reads < 3_000
    with pytest.raises(ProblemError):
        OpenedRecording(data, RATE)


def test_boxes_without_an_end_come_to_one() -> None:
    assert unneeded_atoms(BoundedFile(b"\0\0\0\x08free" * 100_000 + movies.promising(1))) == ()
    assert unneeded_atoms(BoundedFile(b"\0\0\0\x02moov" * 1_000)) == ()
    assert unneeded_atoms(BoundedFile(b"\0\0\0\0moov" * 1_000)) == (12,)


def test_other_containers_are_no_movies(tmp_path: Path) -> None:
    for container in ("wav", "flac", "mp3", "mkv", "mpegts", "caf"):
        path = write_recording(tmp_path / container, silence(1), container)
        assert not is_mp4(BoundedFile(path.read_bytes()))
    assert not is_mp4(BoundedFile(b""))

"""Recordings in all containers are decoded fully and in bounded memory; other files are rejected."""

from __future__ import annotations

import io
import subprocess
import sys
import tracemalloc
import wave
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from greenroom.engine.media import decoders, recordings
from greenroom.engine.media.recording_windows import RecordingReader
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.hostile import movies, sounds
from greenroom.tests.support.media.hanging_recordings import decoding_threads, hanging_decoders
from greenroom.tests.support.media.recordings import CONTAINERS, RATE, Sound, silence, write_recording
from greenroom.tests.support.servers.bounded_waits import PATIENCE, wait_until


def decode(path: Path, rate: int = RATE) -> Sound:
    recording = RecordingReader(path, rate)
    try:
        blocks = []
        while (block := recording.read(1.0)) is not None:
            blocks.append(block)
        return np.concatenate(blocks)
    finally:
        recording.close()


def refusal(path: Path) -> str:
    with pytest.raises(ProblemError) as refused:
        decode(path)
    assert refused.value.problem.status == 400
    assert refused.value.problem.param == "file"
    return refused.value.problem.detail


@pytest.fixture(scope="module")
def sound() -> Sound:
    seconds = np.arange(2 * RATE) / RATE
    return (np.sin(2 * np.pi * 440 * seconds) * 0.5).astype(np.float32)


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_is_decoded_in_full(container: str, sound: Sound, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "recording", sound, container, rate=48_000)
    decoded = decode(path)
    assert abs(len(decoded) - len(sound)) < 0.15 * RATE
    middle = decoded[len(decoded) // 4 : -len(decoded) // 4]
    frequency = np.argmax(np.abs(np.fft.rfft(middle))) * RATE / len(middle)
    assert abs(frequency - 440) < 3
    assert abs(float(np.sqrt(np.mean(middle**2))) - 0.5 / 2**0.5) < 0.05


def test_the_sound_of_a_film_is_heard(sound: Sound, tmp_path: Path) -> None:
    for container in ("m4a", "mkv", "mpegts"):
        path = write_recording(tmp_path / container, sound, container, video=True)
        assert abs(len(decode(path)) - len(sound)) < 0.15 * RATE


def test_channels_are_mixed_down(sound: Sound, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "stereo", sound, channels=2, rate=44_100)
    assert abs(len(decode(path)) - len(sound)) < 100


def test_what_floating_point_cannot_mean_is_silence(tmp_path: Path) -> None:
    values = np.full(RATE, np.nan, np.float32)
    values[::2] = np.inf
    path = tmp_path / "nan.wav"
    path.write_bytes(sounds.wav(values.tobytes(), bits=32, coding=sounds.FLOAT))
    decoded = decode(path)
    assert len(decoded) == RATE
    assert np.isfinite(decoded).all()


def test_far_too_loud_samples_are_as_loud_as_can_be(tmp_path: Path) -> None:
    path = tmp_path / "loud.wav"
    path.write_bytes(sounds.samples(3e38))
    assert (decode(path) == 1.0).mean() > 0.9


def _zip_of(path: Path) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.write(path)
    return archive.getvalue()


def test_what_is_no_recording_is_refused_and_nothing_else_is_opened(sound: Sound, tmp_path: Path) -> None:
    good = write_recording(tmp_path / "good.wav", sound)
    play = f"file://{good}"
    lists = {
        "hls": f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXT-X-VERSION:3\n#EXTINF:9,\n{play}\n#EXT-X-ENDLIST\n",
        "hls-http": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n",
        "concat": f"ffconcat version 1.0\nfile '{good}'\n",
        "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
        "dash": f'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period>'
        f"<AdaptationSet><Representation><BaseURL>{play}</BaseURL></Representation></AdaptationSet></Period></MPD>",
        "text": "This is no recording at all, whatever it is called. " * 400,
    }
    for name, text in lists.items():
        path = tmp_path / f"{name}.mp3"
        path.write_text(text)
        assert "no audio or video file" in refusal(path), name
    for name, data in {
        "zip": _zip_of(good),
        "zeros": bytes(200_000),
        "noise": np.random.default_rng(0).bytes(200_000),
        "head": good.read_bytes()[:44],
        "half a head": good.read_bytes()[:20],
    }.items():
        path = tmp_path / "recording.wav"
        path.write_bytes(data)
        assert refusal(path), name
    empty = tmp_path / "empty"
    empty.touch()
    assert refusal(empty) == "The file is empty."


def test_nested_containers_are_no_recording(sound: Sound, tmp_path: Path) -> None:
    data = write_recording(tmp_path / "inner", sound, "mkv").read_bytes()
    for _ in range(20):
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
            writer.writestr("recording.mkv", data)
        data = archive.getvalue()
    path = tmp_path / "nested"
    path.write_bytes(data)
    assert refusal(path)


def test_a_recording_that_is_cut_off_is_heard_as_far_as_it_goes(sound: Sound, tmp_path: Path) -> None:
    for container in ("wav", "mp3", "flac", "opus", "webm"):
        path = write_recording(tmp_path / container, sound, container)
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
        assert 0.5 * RATE < len(decode(path)) < 1.9 * RATE


def test_broken_packets_are_passed_over(sound: Sound, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "recording", sound, "mp3")
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 400] = np.random.default_rng(0).bytes(400)
    path.write_bytes(bytes(data))
    assert len(decode(path)) > 1.5 * RATE


def test_a_recording_longer_than_any_is_refused_wherever_that_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "MAX_SECONDS", 3)
    declared = write_recording(tmp_path / "declared", silence(4))
    assert "longer than" in refusal(declared)
    # The header of a raw AAC stream states no length.
    undeclared = write_recording(tmp_path / "undeclared", silence(4), "aac")
    assert "longer than" in refusal(undeclared)


def test_a_recording_of_more_samples_than_any_is_refused_wherever_that_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = tmp_path / "declared.flac"
    declared.write_bytes(sounds.silent_flac(5.0, 192_000, 8))
    assert "more than 8,294,400,000 samples" in refusal(declared)
    monkeypatch.setattr(recordings, "MAX_SAMPLES", 3 * RATE)
    undeclared = write_recording(tmp_path / "undeclared", silence(4), "aac")
    assert "more than" in refusal(undeclared)


def test_few_bytes_never_last_for_months(tmp_path: Path) -> None:
    path = tmp_path / "slow.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(1)
        file.writeframes(bytes(20_000))
    assert "samples a second" in refusal(path)


@pytest.mark.parametrize(
    ("shape", "right"),
    [
        ({"rate": 192_001}, "192,001 samples a second; 1,000 to 192,000 are taken"),
        ({"rate": 999}, "999 samples a second; 1,000 to 192,000 are taken"),
        ({"channels": 9}, "9 channels; 1 to 8 are taken"),
    ],
)
def test_rates_and_channels_of_no_microphone_are_refused(
    shape: dict[str, int], right: str, tmp_path: Path
) -> None:
    path = tmp_path / "odd.wav"
    path.write_bytes(sounds.wav(bytes(90_000), **shape))
    assert right in refusal(path)


def test_the_best_microphones_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "best.wav"
    path.write_bytes(sounds.wav(bytes(2 * 8 * 192_000), rate=192_000, channels=8))
    assert abs(len(decode(path)) - RATE) < 100


@pytest.mark.deep
def test_memory_does_not_grow_with_a_recording(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "long", silence(600), "flac")
    recording = RecordingReader(path, RATE)
    assert recording.read(5.0) is not None
    tracemalloc.start()
    heard = 0
    while (block := recording.read(1.0)) is not None:
        heard += len(block)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    recording.close()
    assert heard == 600 * RATE
    assert peak < heard * 4 / 6


_PEAK = """
import resource, sys
from pathlib import Path
from greenroom.engine.media.recordings import OpenedRecording
from greenroom.schemas.problems import ProblemError
for name in sys.argv[1:]:
    try:
        list(OpenedRecording(Path(name), 16_000).blocks())
    except ProblemError as error:
        assert error.problem.status == 400
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
"""


@pytest.mark.parametrize(
    ("make", "samples"),
    [
        (movies.promising, 50_000_000),
        (movies.promising_fragment, 50_000_000),
        # The limit for one track.
        (partial(movies.promising, tracks=31), 1_300_000),
        (movies.promising_outside, 600_000),
    ],
)
def test_promised_samples_take_no_memory(make: Callable[[int], bytes], samples: int, tmp_path: Path) -> None:
    """Runs in a process of its own, since the system reports only a process's peak memory."""
    few, many = tmp_path / "few.m4a", tmp_path / "many.m4a"
    few.write_bytes(make(100))
    many.write_bytes(make(samples))
    command = [sys.executable, "-c", _PEAK, str(few), str(many)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after = map(int, ran.stdout.split())
    assert after - before < 60_000_000


def test_decoding_keeps_no_further_ahead_than_is_wanted(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "long", silence(120), "flac")
    recording = RecordingReader(path, RATE, ahead=4.0)
    assert recording.read(PATIENCE) is not None
    first = recording.read(PATIENCE)
    assert recording.facts is not None
    assert first is not None
    assert len(first) == RATE // 2
    wait_until(lambda: not decoding_threads())
    recording.close()
    ahead = 0
    while (block := recording.read(0.0)) is not None and len(block):
        ahead += len(block)
    assert ahead in (round(3.5 * RATE), 4 * RATE)


def _read_on(recording: RecordingReader) -> None:
    while True:
        recording.read(0.01)


def test_a_decoder_that_hangs_costs_its_recording_and_is_not_started_for_ever(
    sound: Sound, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recording(tmp_path / "recording", sound)
    monkeypatch.setattr(decoders, "STALL_SECONDS", 0.0)
    with hanging_decoders():
        for number in range(decoders.MAX_STALLED):
            hanging = RecordingReader(path, RATE)
            if number % 2:  # The client disconnects before the time limit.
                hanging.close()
                continue
            with pytest.raises(ProblemError, match="longer than"):
                _read_on(hanging)
        with pytest.raises(ProblemError) as refused:
            RecordingReader(path, RATE)
    assert refused.value.problem.code == "decoders_hung"
    monkeypatch.undo()
    assert len(decode(path)) == len(sound)

"""Audio encoding of speech, chunk by chunk."""

from __future__ import annotations

import io

import numpy as np
import pytest

from greenroom.http.media.audio_encoder import AUDIO_FORMATS, AudioEncoder, complete_wav_header
from greenroom.tests.support.media.audio_files import decode, tone


def encoded(form: str, samples: bytes, rate: int, chunk: int) -> list[bytes]:
    encoder = AudioEncoder(AUDIO_FORMATS[form])
    pieces = [encoder.encode(samples[at : at + chunk], rate) for at in range(0, len(samples), chunk)]
    return [*pieces, encoder.finish()]


@pytest.mark.parametrize("form", ["mp3", "opus", "aac", "flac", "wav"])
@pytest.mark.parametrize("rate", [16_000, 22_050, 24_000, 44_100, 96_000])
def test_speech_of_any_rate_keeps_its_length_and_its_pitch(form: str, rate: int) -> None:
    heard = decode(b"".join(encoded(form, tone(1.5, rate).tobytes(), rate, 3_840)))
    assert heard.seconds == pytest.approx(1.5, abs=0.12)
    loudest = np.argmax(np.abs(np.fft.rfft(heard.samples))) / heard.seconds
    assert loudest == pytest.approx(440, rel=0.02)
    loudness = np.sqrt(np.mean(np.square(heard.samples)))
    assert loudness == pytest.approx(8_000 / 32_768 / np.sqrt(2), rel=0.1)


@pytest.mark.parametrize("form", list(AUDIO_FORMATS))
def test_bytes_go_out_with_the_first_chunks(form: str) -> None:
    pieces = encoded(form, tone(10.0).tobytes(), 24_000, 3_840)
    early = next(number for number, piece in enumerate(pieces) if piece)
    assert early <= 2  # chunks of 80 ms
    sizes = [len(b"".join(pieces[at : at + 25])) for at in range(0, 125, 25)]
    assert min(sizes) > max(sizes) / 4


@pytest.mark.parametrize("form", ["mp3", "aac", "flac", "wav", "pcm"])
def test_the_size_of_chunks_does_not_matter(form: str) -> None:
    samples = tone(0.5).tobytes()
    assert len({b"".join(encoded(form, samples, 24_000, chunk)) for chunk in (2, 1_000, 100_000)}) == 1


def test_raw_audio_is_at_24_khz() -> None:
    assert len(b"".join(encoded("pcm", tone(1.0, 48_000).tobytes(), 48_000, 9_600))) == pytest.approx(
        48_000, abs=100
    )
    samples = tone(1.0).tobytes()
    assert b"".join(encoded("pcm", samples, 24_000, 9_600)) == samples


@pytest.mark.parametrize("form", list(AUDIO_FORMATS))
def test_no_speech_is_no_file(form: str) -> None:
    assert encoded(form, b"", 24_000, 10) == [b""]
    encoder = AudioEncoder(AUDIO_FORMATS[form])
    encoder.encode(b"", 24_000)
    encoder.finish()


def test_a_wav_file_on_disk_gets_its_length() -> None:
    import wave

    file = io.BytesIO(b"".join(encoded("wav", tone(1.0).tobytes(), 24_000, 9_600)))
    complete_wav_header(file)
    file.seek(0)
    with wave.open(file) as header:
        assert (header.getnframes(), header.getframerate(), header.getnchannels()) == (24_000, 24_000, 1)

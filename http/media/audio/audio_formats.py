"""Audio formats of speech responses, by OpenAI's names."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

PCM_RATE = 24_000
"""Sample rate of raw audio in Hz, which raw audio cannot state itself."""


@attrs.frozen
class AudioFormat:
    """One audio format.

    Args:
        content_type: Content type of the response.
        container: FFmpeg's name of the container; empty for uncompressed samples.
        codec: FFmpeg's name of the encoder.
        rates: Supported sample rates in Hz; empty for any.
        bit_rate: Bit rate of one channel in bits per second.
        options: Options of the container that flush every packet and rewrite nothing afterwards.
        codec_options: Options of the encoder.
    """

    content_type: str
    container: str = ""
    codec: str = ""
    rates: tuple[int, ...] = ()
    bit_rate: int | None = None
    options: Mapping[str, str] = attrs.field(factory=dict)
    codec_options: Mapping[str, str] = attrs.field(factory=dict)

    def rate_for(self, rate: int) -> int:
        """Return the same sample rate if supported, else the next higher, else the highest one."""
        if not self.rates or rate in self.rates:
            return rate
        return min((known for known in self.rates if known > rate), default=max(self.rates))


_MPEG_RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
_OPUS_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)

# A thorough search by the encoders would double the encoding time, and only helps music at low bit rates.
AUDIO_FORMATS: Mapping[str, AudioFormat] = {
    "mp3": AudioFormat(
        "audio/mpeg",
        "mp3",
        "libmp3lame",
        _MPEG_RATES,
        96_000,
        {"write_xing": "0", "id3v2_version": "0"},
        {"compression_level": "7"},
    ),
    "opus": AudioFormat(
        "audio/ogg",
        "ogg",
        "libopus",
        _OPUS_RATES,
        48_000,
        {"page_duration": "80000"},
        {"compression_level": "5"},
    ),
    "aac": AudioFormat("audio/aac", "adts", "aac", _MPEG_RATES, 96_000),
    "flac": AudioFormat("audio/flac", "flac", "flac"),
    "wav": AudioFormat("audio/wav"),
    "pcm": AudioFormat("audio/pcm", rates=(PCM_RATE,)),
}

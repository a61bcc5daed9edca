"""The forms in which speech is sent, by the names that OpenAI's clients use."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

PCM_RATE = 24_000
"""Samples a second of raw audio, which does not say so itself."""


@attrs.frozen
class AudioFormat:
    """One form.

    Args:
        content_type: Of a response.
        container: FFmpeg's name of it; empty if the samples are sent as they are.
        codec: FFmpeg's encoder.
        rates: Samples a second that the form knows; empty for any.
        bit_rate: Bits a second of one channel.
        options: Of the container: so that every packet goes out at once, and nothing is written later on.
        codec_options: Of the encoder.
    """

    content_type: str
    container: str = ""
    codec: str = ""
    rates: tuple[int, ...] = ()
    bit_rate: int | None = None
    options: Mapping[str, str] = attrs.field(factory=dict)
    codec_options: Mapping[str, str] = attrs.field(factory=dict)

    def rate_for(self, rate: int) -> int:
        """Return the form's rate for speech of a rate: its own, or the next higher, or the highest."""
        if not self.rates or rate in self.rates:
            return rate
        return min((known for known in self.rates if known > rate), default=max(self.rates))


_MPEG_RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
_OPUS_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)

# The encoders' search for better bits costs as much again as the encoding, and pays for music at low rates.
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

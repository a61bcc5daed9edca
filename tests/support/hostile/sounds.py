"""Hostile audio: files with false headers, references to others, embedded archives, or hours of sound."""

from __future__ import annotations

import io
import math
import struct
import zipfile
from array import array
from collections.abc import Callable, Mapping
from functools import cache, partial

from greenroom.tests.support.hostile import movies, pictures

PCM, FLOAT = 1, 3
"""Sample formats of a WAV file."""
LONG_SILENCE = "silence of 5 hours at 48,000 samples a second in 8 channels"
"""Name of the file that takes the most work to decode for its few bytes; no model needs to run for it."""


def wav(
    data: bytes = b"",
    *,
    rate: int = 16_000,
    channels: int = 1,
    bits: int = 16,
    coding: int = PCM,
    length: int | None = None,
) -> bytes:
    """Return a WAV file.

    Args:
        length: Size of the sound in bytes that the header claims; None for the true one.
    """
    frame = channels * bits // 8
    head = struct.pack("<HHIIHH", coding, channels, rate, rate * frame % 2**32, frame % 2**16, bits)
    size = len(data) if length is None else length
    body = b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", min(36 + size, 2**32 - 1)) + body


def tone(seconds: float = 0.5, rate: int = 16_000) -> bytes:
    """Return a WAV file of a 440 Hz tone."""
    wave = (int(9_000 * math.sin(math.tau * 440 * i / rate)) for i in range(int(seconds * rate)))
    return wav(array("h", wave).tobytes(), rate=rate)


def samples(value: float, seconds: float = 0.5) -> bytes:
    """Return a WAV file of 32-bit floats all equal to `value`, such as NaN."""
    data = array("f", [value] * int(seconds * 16_000)).tobytes()
    return wav(data, bits=32, coding=FLOAT)


def silent_flac(hours: float = 10.0, rate: int = 8_000, channels: int = 1) -> bytes:
    """Return a FLAC file of silence, 60 KB for 10 hours, in blocks of 65,535 equal samples (RFC 9639)."""
    block = 65_535
    count = math.ceil(hours * 3_600 * rate / block)
    total = count * block
    info = struct.pack(">HH", block, block) + bytes(6)
    info += (rate << 44 | (channels - 1) << 41 | 15 << 36 | total).to_bytes(8, "big") + bytes(16)
    frames = (_silent_frame(number, channels) for number in range(count))
    return b"fLaC" + b"\x80" + len(info).to_bytes(3, "big") + info + b"".join(frames)


def nested_archive(depth: int = 6, width: int = 8) -> bytes:
    """Return a nested archive with a Matroska header in the innermost file."""
    content = b"\x1a\x45\xdf\xa3" + bytes(100_000)
    for level in range(depth):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(width):
                archive.writestr(f"{level}-{number}.mkv", content)
        content = file.getvalue()
    return content


def hls_playlist(url: str) -> bytes:
    """Return an HLS playlist (m3u8) with one segment at `url`."""
    head = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:10\n#EXT-X-MEDIA-SEQUENCE:0\n"
    return f"{head}#EXTINF:10.0,\n{url}\n#EXT-X-ENDLIST\n".encode()


def concatenation(url: str) -> bytes:
    """Return an ffconcat list with one file at `url`."""
    return f"ffconcat version 1.0\nfile '{url}'\n".encode()


def dash_manifest(url: str) -> bytes:
    """Return a DASH manifest (MPD) with one segment at `url`."""
    return (
        '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
        'mediaPresentationDuration="PT9S" profiles="urn:mpeg:dash:profile:isoff-on-demand:2011">'
        '<Period><AdaptationSet mimeType="audio/mp4"><Representation id="1" bandwidth="9">'
        f"<BaseURL>{url}</BaseURL></Representation></AdaptationSet></Period></MPD>"
    ).encode()


def session_description(port: int) -> bytes:
    """Return an SDP file, which makes some readers listen on a network port."""
    return (
        f"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio {port} RTP/AVP 0\n".encode()
    )


def naming(url: str) -> dict[str, bytes]:
    """Return files that refer to another one, which must never be read or requested."""
    return {
        "m3u8": hls_playlist(url),
        "plain m3u": f"#EXTM3U\n{url}\n".encode(),
        "ffconcat": concatenation(url),
        "MPD": dash_manifest(url),
        "PLS": f"[playlist]\nNumberOfEntries=1\nFile1={url}\n".encode(),
        "SDP": session_description(9),
        "SVG": b'<svg xmlns="http://www.w3.org/2000/svg"><image href="%b"/></svg>' % url.encode(),
        "concat protocol": f"concat:{url}|{url}".encode(),
    }


REFUSED: Mapping[str, Callable[[], bytes]] = {
    "nothing": bytes,
    "one byte": lambda: b"\xff",
    "zeros": lambda: bytes(10_000),
    "text": lambda: b"This is not audio. " * 200,
    "JSON": lambda: b'{"audio": null}',
    "page": lambda: b"<html><audio src='x.mp3'></audio></html>",
    "picture": pictures.photo,
    "animation": pictures.gif,
    "WAV without samples": wav,
    "WAV header alone": lambda: wav()[:20],
    "WAV of no channels": lambda: wav(bytes(1_000), channels=0),
    "WAV of a rate of 0": lambda: wav(bytes(1_000), rate=0),
    "WAV of an unknown coding": lambda: wav(bytes(1_000), coding=0x9999),
    "truncated FLAC": lambda: silent_flac(0.01)[:30],
    "silence at 655,350 samples a second in 8 channels": partial(silent_flac, 0.1, 655_350, 8),
    "silence of 5 hours at 192,000 samples a second in 8 channels": partial(silent_flac, 5.0, 192_000, 8),
    "WAV of 65,535 channels": lambda: wav(bytes(65_535 * 8), channels=65_535),
    "WAV at 4 GHz": lambda: wav(bytes(16_000), rate=2**32 - 1),
    "WAV at 1 Hz": lambda: wav(bytes(16_000), rate=1),
    "archive of nested containers": nested_archive,
    "MP4 that promises 10,000,000 samples": partial(movies.promising, 10_000_000),
    "MP4 of 64 such tracks": partial(movies.promising, 10_000_000, 64),
    "MP4 of 31 tracks, each as long as any": partial(movies.promising, 1_300_000, 31),
    "MP4 whose fragment promises 10,000,000 samples": partial(movies.promising_fragment, 10_000_000),
    **{
        f"{name} of a local file": partial(naming("file:///etc/passwd").__getitem__, name)
        for name in naming("")
    },
}
"""Files to be refused with a 4xx, by name."""

ODD: Mapping[str, Callable[[], bytes]] = {
    "WAV that promises 4 GB": lambda: wav(bytes(16_000), length=2**32 - 1),
    "WAV that promises less than it has": lambda: wav(bytes(16_000), length=4),
    "WAV of one sample": lambda: wav(b"\0\0"),
    "NaN": partial(samples, math.nan),
    "infinite": partial(samples, math.inf),
    "far too loud": partial(samples, 3e38),
    "silence of 10 hours": silent_flac,
    LONG_SILENCE: partial(silent_flac, 5.0, 48_000, 8),
    "WAV that is an archive": lambda: pictures.with_archive(tone()),
}
"""Files that may be transcribed, or refused with a 4xx, in bounded memory and without NaN in the answer."""


def _silent_frame(number: int, channels: int) -> bytes:
    # Fixed block size stored in 16 bits, sample rate from the header, 16 bits per sample. Each channel
    # follows as a constant subframe of zero.
    head = b"\xff\xf8\x70" + bytes([(channels - 1) << 4 | 8]) + _coded(number) + struct.pack(">H", 65_534)
    head += bytes([_checksum(head, 0x07, 8)])
    frame = head + b"\x00\x00\x00" * channels
    return frame + _checksum(frame, 0x8005, 16).to_bytes(2, "big")


def _coded(number: int) -> bytes:
    """Return a number in FLAC's extension of UTF-8."""
    return chr(number).encode("utf-8", "surrogatepass")


def _checksum(data: bytes, polynomial: int, bits: int) -> int:
    table, mask = _remainders(polynomial, bits), (1 << bits) - 1
    register = 0
    for byte in data:
        register = (register << 8 ^ table[register >> (bits - 8) ^ byte]) & mask
    return register


@cache
def _remainders(polynomial: int, bits: int) -> tuple[int, ...]:
    """Return the CRC table, one remainder for each byte."""
    top, mask = 1 << (bits - 1), (1 << bits) - 1
    table = []
    for byte in range(256):
        register = byte << (bits - 8)
        for _ in range(8):
            register = (register << 1 ^ polynomial if register & top else register << 1) & mask
        table.append(register)
    return tuple(table)

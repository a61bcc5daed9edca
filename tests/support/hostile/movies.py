"""Hostile MP4 files, made of single boxes (ISO/IEC 14496-12): a few bytes that claim millions of samples."""

from __future__ import annotations

import struct

_RATE = 16_000


def promising(samples: int, tracks: int = 1) -> bytes:
    """Return a file whose tables claim `samples` one-byte samples for each track, all in one chunk."""
    movie = _box(b"moov", _header(), *_promising_tracks(samples, tracks))
    return _box(b"ftyp", b"isom", bytes(4)) + _box(b"mdat", bytes(400)) + movie


def promising_outside(samples: int, tracks: int = 31) -> bytes:
    """Return such a file with its tracks at a wrong place, where decoders read them nevertheless."""
    return promising(samples, 1) + b"".join(_promising_tracks(samples, tracks))


def promising_fragment(samples: int) -> bytes:
    """Return a fragmented file whose first fragment claims `samples` samples."""
    empty = _box(
        b"stbl",
        _description(),
        *(_full(name, bytes(4)) for name in (b"stts", b"stsc", b"stco")),
        _full(b"stsz", bytes(8)),
    )
    fragments = _box(b"mvex", _full(b"trex", struct.pack(">IIIII", 1, 1, 1, 1, 0)))
    movie = _box(b"moov", _header(), _track(1, empty), fragments)
    run = _box(b"traf", _full(b"tfhd", struct.pack(">I", 1)), _full(b"trun", struct.pack(">I", samples)))
    fragment = _box(b"moof", _full(b"mfhd", struct.pack(">I", 1)), run)
    return _box(b"ftyp", b"isom", bytes(4)) + movie + fragment + _box(b"mdat", bytes(400))


def _promising_tracks(samples: int, tracks: int) -> list[bytes]:
    table = _box(
        b"stbl",
        _description(),
        _full(b"stts", struct.pack(">III", 1, samples, 0)),
        _full(b"stsc", struct.pack(">IIII", 1, 1, samples, 1)),
        _full(b"stsz", struct.pack(">II", 1, samples)),
        _full(b"stco", struct.pack(">II", 1, 64)),
    )
    return [_track(number, table) for number in range(1, tracks + 1)]


def _box(name: bytes, *content: bytes) -> bytes:
    body = b"".join(content)
    return struct.pack(">I", 8 + len(body)) + name + body


def _full(name: bytes, content: bytes) -> bytes:
    return _box(name, bytes(4), content)


def _header() -> bytes:
    return _full(b"mvhd", struct.pack(">IIII", 0, 0, 1_000, 1_000) + bytes(80))


def _track(number: int, table: bytes) -> bytes:
    head = _full(b"tkhd", struct.pack(">IIIII", 0, 0, number, 0, 1_000) + bytes(60))
    times = _full(b"mdhd", struct.pack(">IIIII", 0, 0, _RATE, _RATE, 0))
    handler = _full(b"hdlr", bytes(4) + b"soun" + bytes(13))
    return _box(b"trak", head, _box(b"mdia", times, handler, _box(b"minf", table)))


def _description() -> bytes:
    """Return a sample description of one format: AMR, whose decoder needs no further data."""
    sound = bytes(6) + struct.pack(">H8xHHIHH", 1, 1, 16, 0, _RATE, 0)
    return _full(b"stsd", struct.pack(">I", 1) + _box(b"samr", sound))

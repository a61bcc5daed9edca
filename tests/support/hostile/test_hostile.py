"""Hostile inputs are valid except for their hostile part."""

from __future__ import annotations

import io
import zlib
from typing import Any
from urllib.request import urlopen

import av
import pytest
from PIL import Image

from greenroom.tests.support.hostile import addresses, documents, pictures, pngs, sounds, uploads


@pytest.mark.parametrize("size", [0, 1, 1 << 20, 3_000_001])
def test_compressed_zeros_inflate_to_as_many(size: int) -> None:
    assert zlib.decompress(pngs.compressed_zeros(size)) == bytes(size)


def test_the_bomb_differs_from_a_valid_image_in_its_size_alone() -> None:
    small, large = (Image.open(io.BytesIO(pngs.bomb(side))) for side in (64, 9_000))
    assert (small.size, large.size) == ((64, 64), (9_000, 9_000))
    small.load()
    large.load()


def test_a_gif_has_its_frames() -> None:
    image = Image.open(io.BytesIO(pictures.gif(frames=12)))
    assert getattr(image, "n_frames", 0) == 12


def decoded(data: bytes) -> list[Any]:
    with av.open(io.BytesIO(data), "r") as container:
        return list(container.decode(audio=0))


def test_silence_decodes_to_its_length() -> None:
    frames = decoded(sounds.silent_flac(hours=0.1))
    assert sum(frame.samples for frame in frames) / 8_000 == pytest.approx(360, abs=9)


def test_silence_has_as_many_channels_as_it_says() -> None:
    frames = decoded(sounds.silent_flac(hours=0.001, rate=192_000, channels=8))
    assert {(frame.sample_rate, frame.layout.nb_channels) for frame in frames} == {(192_000, 8)}
    assert not any(frame.to_ndarray().any() for frame in frames)


def test_a_tone_is_audio() -> None:
    assert sum(frame.samples for frame in decoded(sounds.tone(0.5))) == 8_000


def test_objects_of_a_document_stand_where_its_table_says() -> None:
    whole = documents.document(3)
    table = whole[whole.index(b"xref") :].split(b"\n")[3:9]
    places = [int(line.split()[0]) for line in table]
    assert [whole[place:].split()[0] for place in places] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert whole.count(b"/Type/Page/") == 3


def test_an_upload_has_the_length_that_it_promises() -> None:
    upload = uploads.Upload({"model": "x"}, 200_001, b"ID3")
    whole = upload.whole()
    assert len(whole) == int(upload.headers["content-length"])
    assert b'name="model"\r\n\r\nx\r\n' in whole
    assert max(map(len, upload.pieces())) <= 1 << 16


def test_the_trap_notes_who_asks() -> None:
    with addresses.trap() as trap:
        with urlopen(f"{trap.address}/redirect/%2Fimage.png") as answer:
            assert answer.read() == pngs.png()
        assert trap.asked == ["/redirect/%2Fimage.png", "/image.png"]

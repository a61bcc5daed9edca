"""Decoding of images: results, rejected files, and bounded cost of both."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from PIL import Image

from greenroom.engine.media.images import ImageLimits, ResolutionLimit, decode_image
from greenroom.http.media.media_reader import MAX_FILE_BYTES, MAX_TOTAL_BYTES
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.tests.support.hostile import documents, pictures, pngs
from greenroom.tests.support.platforms.peak_memory import peak_bytes

PARAM = "messages[0].content[1].image_url"
WHITE, RED, BLUE = (255, 255, 255), (255, 0, 0), (0, 0, 255)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def refused(data: bytes, limits: ImageLimits = ImageLimits()) -> Problem:  # noqa: B008
    with pytest.raises(ProblemError) as caught:
        decode_image(data, limits, param=PARAM)
    return caught.value.problem


def corner(image: Image.Image, x: int = 0, y: int = 0) -> tuple[int, ...]:
    value = image.getpixel((x, y))
    assert isinstance(value, tuple)
    return value


@pytest.mark.parametrize("make", pictures.REFUSED.values(), ids=pictures.REFUSED)
def test_hostile_files_are_refused_by_name(make: Callable[[], bytes]) -> None:
    problem = refused(make())
    assert (problem.status, problem.param) == (400, PARAM)
    assert f"`{PARAM}`" in problem.detail


@pytest.mark.parametrize("make", pictures.ODD.values(), ids=pictures.ODD)
def test_odd_files_are_decoded_or_refused_for_little_memory(make: Callable[[], bytes]) -> None:
    data = make()
    before = peak_bytes()
    with suppress(ProblemError):
        assert decode_image(data, param=PARAM).mode == "RGB"
    assert peak_bytes() - before < 64 << 20


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (pictures.svg(), "SVG"),
        (pictures.tiff(), "TIFF"),
        (encoded(Image.new("RGB", (4, 4)), "BMP"), "BMP"),
        (encoded(Image.new("RGB", (4, 4)), "AVIF"), "AVIF"),
        (b"hello", "text"),
        (documents.document(), "PDF"),
        (b"", "empty"),
    ],
)
def test_other_formats_are_named_with_what_would_be_right(data: bytes, named: str) -> None:
    detail = refused(data).detail
    assert named in detail
    assert "JPEG, PNG, GIF, WebP or HEIC" in detail


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "HEIF"])
def test_every_format_gives_its_pixels(kind: str) -> None:
    pytest.importorskip("pillow_heif").register_heif_opener()
    picture = Image.new("RGB", (64, 48), RED)
    decoded = decode_image(encoded(picture, kind))
    assert (decoded.mode, decoded.size) == ("RGB", (64, 48))
    assert np.abs(np.asarray(decoded, int) - np.asarray(picture, int)).max() <= 8


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_images_stand_as_the_camera_was_held(kind: str, orientation: int) -> None:
    from PIL import ImageOps

    pixels = np.zeros((32, 48, 3), np.uint8)
    pixels[:16, :16] = RED
    pixels[16:, 32:] = BLUE
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(pixels), kind, exif=exif, **({} if kind == "PNG" else {"quality": 100}))
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    decoded = decode_image(data)
    assert decoded.size == expected.size
    assert np.array_equal(np.asarray(decoded), np.asarray(expected))


def test_exif_of_many_large_values_costs_nothing() -> None:
    entries = 5_000
    values = b"".join(struct.pack("<HHII", 0x9000 + i, 7, 60_000, 100) for i in range(entries))
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, entries) + values
    whole = encoded(Image.new("RGB", (8, 8)), "JPEG")
    segment = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
    before = peak_bytes()
    assert decode_image(whole[:2] + segment * 20 + whole[2:]).size == (8, 8)
    assert peak_bytes() - before < 16 << 20


@pytest.mark.parametrize(
    "picture",
    [
        Image.new("RGBA", (8, 8), (*RED, 0)),
        Image.new("LA", (8, 8), (0, 0)),
        Image.new("P", (8, 8)),
    ],
    ids=["RGBA", "LA", "palette"],
)
def test_what_is_transparent_is_white(picture: Image.Image) -> None:
    options: dict[str, Any] = {"transparency": 0} if picture.mode == "P" else {}
    data = encoded(picture, **options)
    assert corner(decode_image(data)) == WHITE


def test_half_transparent_pixels_are_mixed_with_white() -> None:
    assert corner(decode_image(encoded(Image.new("RGBA", (8, 8), (0, 0, 0, 128))))) == (127, 127, 127)


def test_every_kind_of_pixel_is_read() -> None:
    deep = Image.fromarray(np.full((4, 4), 0x8000, np.uint16))
    assert corner(decode_image(encoded(deep))) == (128, 128, 128)
    assert corner(decode_image(encoded(Image.new("1", (4, 4), 1)))) == WHITE
    assert corner(decode_image(encoded(Image.new("L", (4, 4), 7)))) == (7, 7, 7)
    ink = decode_image(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=100))
    assert np.abs(np.subtract(corner(ink), RED)).max() < 60


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_the_first_frame_stands_for_an_animation(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in (RED, BLUE, BLUE)]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)
    assert corner(decode_image(data)) == RED


def test_phone_photos_with_a_second_picture_are_decoded() -> None:
    small = Image.new("RGB", (16, 16), BLUE)
    data = encoded(Image.new("RGB", (64, 64), RED), "MPO", save_all=True, append_images=[small])
    assert decode_image(data).size == (64, 64)


def test_a_jpeg_that_is_drawn_without_end_is_refused() -> None:
    whole = encoded(Image.new("RGB", (64, 64)), "JPEG", progressive=True)
    last = whole.rindex(b"\xff\xda")
    assert "64 times" in refused(whole[:-2] + whole[last:-2] * 100 + whole[-2:]).detail
    assert decode_image(whole).size == (64, 64)


def test_limits_of_bytes_and_pixels_are_named() -> None:
    limits = ImageLimits(bytes_each=1 << 20, pixels=100)
    assert "1 MB" in refused(bytes((1 << 20) + 1), limits).detail
    assert (ImageLimits().bytes_each, ImageLimits().bytes_together) == (MAX_FILE_BYTES, MAX_TOTAL_BYTES)
    problem = refused(pngs.png(11, 10), limits)
    assert (problem.code, "11 x 10" in problem.detail) == ("image_too_large", True)
    assert decode_image(pngs.png(10, 10), limits).size == (10, 10)


@pytest.mark.parametrize(
    ("resolution", "size"),
    [
        (ResolutionLimit(width=100, height=100), (100, 200)),
        (ResolutionLimit(width=400, height=400), (400, 800)),
        (ResolutionLimit(area=80_000), (200, 400)),
        (ResolutionLimit(width=900, height=900), (400, 800)),
        (ResolutionLimit(), (400, 800)),
    ],
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_large_images_shrink_to_no_less_than_their_model_sees(
    kind: str, resolution: ResolutionLimit, size: tuple[int, int]
) -> None:
    data = pictures.photo(400, 800, kind)
    assert decode_image(data, resolution=resolution).size == size

"""Files inside requests: strict parsing, size limits before decoding, errors that name the field."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from greenroom.http.media import media_reader
from greenroom.http.media.media_reader import (
    MAX_FILE_BYTES,
    MAX_TOTAL_BYTES,
    MediaReader,
    decode_base64,
    decoded_size,
)
from greenroom.schemas.messages.messages import AudioPart, DocumentPart, ImagePart
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.tests.support.hostile import pictures

PHOTO = pictures.photo()
PHOTO_TEXT = base64.b64encode(PHOTO).decode()
PHOTO_URL = f"data:image/jpeg;base64,{PHOTO_TEXT}"
PDF_TEXT = base64.b64encode(b"%PDF-1.7\n%%EOF").decode()


def refusal(read: Callable[[MediaReader], object]) -> Problem:
    with pytest.raises(ProblemError) as caught:
        read(MediaReader())
    assert caught.value.problem.status == 400
    return caught.value.problem


def test_every_way_to_send_a_file_gives_its_bytes() -> None:
    reader = MediaReader()
    photo = ImagePart(PHOTO)
    assert reader.image(PHOTO_URL, "f") == photo
    assert reader.image(PHOTO_URL.replace("data:image/jpeg", "DATA:IMAGE/JPEG;name=a"), "f") == photo
    assert reader.encoded_image(PHOTO_TEXT, "f") == photo
    assert reader.encoded_image(PHOTO_TEXT, "f", "image/png") == photo
    assert reader.encoded_image(PHOTO_URL, "f") == photo
    assert reader.file(PHOTO_TEXT, "f") == photo
    assert reader.image("https://a.org/b", "f", "low") == ImagePart(url="https://a.org/b", detail="low")
    pdf = DocumentPart(b"%PDF-1.7\n%%EOF", name="a.pdf")
    assert reader.document(PDF_TEXT, "f", "a.pdf") == pdf
    assert reader.file(f"data:application/pdf;base64,{PDF_TEXT}", "f", "a.pdf") == pdf
    assert reader.image(f"data:application/pdf;base64,{PDF_TEXT}", "f") == DocumentPart(pdf.data)
    assert reader.recording(PDF_TEXT, "wav", "f") == AudioPart(pdf.data)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("=", "base64"),
        ("A", "base64"),
        ("AA", "padded"),
        ("AAA", "padded"),
        ("AA=A", "base64"),
        ("AAAA=", "base64"),
        ("AAAA====", "base64"),
        ("A===", "base64"),
        ("AA==AAAA", "base64"),
        (" \n", "empty"),
        ("AAA\n", "padded"),
        ("AA==\nAAAA", "base64"),
        ("AA-_", "alphabet for URLs"),
        ("AAA\u00e9", "base64"),
        ("AAA\x00", "base64"),
        ("\ud83d\ude00AAA", "base64"),
    ],
)
def test_what_is_no_base64_is_refused_by_name(text: str, says: str) -> None:
    problem = refusal(lambda reader: reader.encoded_image(text, "images[0]"))
    assert problem.param == "images[0]"
    assert says in problem.detail


def test_base64_is_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media_reader, "_SLICE", 8)
    for size in range(1, 40):
        data = bytes(range(size))
        assert decode_base64(base64.b64encode(data).decode(), "f") == data
        in_lines = base64.encodebytes(data).decode()  # as MIME and `base64 FILE` write it
        for text in (in_lines, in_lines.replace("\n", "\r\n"), f" {in_lines}\t"):
            assert decode_base64(text, "f") == data
            assert decoded_size(text) == size
    for text in ("AAAAAA==AAAAAAAA", "AAAAAAAAAAAAA", "AAAAAAAAAAAA=AAA", "AAAAAAA=AAAAAAAA"):
        with pytest.raises(ProblemError):
            decode_base64(text, "f")


@pytest.mark.parametrize(
    ("read", "param"),
    [
        (lambda reader: reader.image("data:image/png", "a.url"), "a.url"),
        (lambda reader: reader.image("data:,AAAA", "a.url"), "a.url"),
        (lambda reader: reader.image("data:image/png,AAAA", "a.url"), "a.url"),
        (lambda reader: reader.image("data:;base64,AAAA", "a.url"), "a.url"),
        (lambda reader: reader.image("data:image/svg+xml;base64,AAAA", "a.url"), "a.url"),
        (lambda reader: reader.image("data:text/html;base64,AAAA", "a.url"), "a.url"),
        (lambda reader: reader.image(f"data:{'a' * 300};base64,AAAA", "a.url"), "a.url"),
        (lambda reader: reader.image("file:///etc/passwd", "a.url"), "a.url"),
        (lambda reader: reader.image("ftp://a.org/b", "a.url"), "a.url"),
        (lambda reader: reader.image("//a.org/b", "a.url"), "a.url"),
        (lambda reader: reader.image("http:b", "a.url"), "a.url"),
        (lambda reader: reader.image("", "a.url"), "a.url"),
        (lambda reader: reader.image("https://" + "a" * 9000, "a.url"), "a.url"),
        (lambda reader: reader.image(PHOTO_URL, "a.url", "hd"), "a.detail"),
        (lambda reader: reader.encoded_image(PHOTO_TEXT, "a.data", "image/tiff"), "a.media_type"),
        (lambda reader: reader.document(PDF_TEXT, "a.data", None, "text/plain"), "a.media_type"),
        (lambda reader: reader.document(PHOTO_TEXT, "a.data"), "a.data"),
        (lambda reader: reader.recording(PHOTO_TEXT, "flac", "a"), "a.format"),
        (lambda reader: reader.recording("?", "wav", "a"), "a.data"),
    ],
)
def test_what_is_no_file_that_a_model_is_shown_is_refused_by_name(read: Any, param: str) -> None:
    assert refusal(read).param == param


def test_files_are_measured_before_they_are_decoded() -> None:
    # A file within the limit is decoded and refused for its content. A larger one is refused for its size.
    exactly, above = "?" * (MAX_FILE_BYTES // 3 * 4), "?" * (MAX_FILE_BYTES // 3 * 4 + 8)
    assert refusal(lambda reader: reader.encoded_image(above, "f")).code == "file_too_large"
    assert refusal(lambda reader: reader.encoded_image(exactly, "f")).code == "invalid_value"
    reader = MediaReader()
    large = base64.b64encode(bytes(MAX_TOTAL_BYTES // 3)).decode()
    for _ in range(2):
        reader.encoded_image(large, "f")
    with pytest.raises(ProblemError, match="may have at most 50 MB") as caught:
        reader.encoded_image(large + "AAAA", "g")
    assert (caught.value.problem.code, caught.value.problem.param) == ("file_too_large", "g")

"""Images, documents and recordings of one request as protocol-independent content parts."""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Literal, get_args

from greenroom.schemas.file_formats import is_pdf
from greenroom.schemas.messages.messages import AudioPart, DocumentPart, ImageDetail, ImagePart
from greenroom.schemas.problems import Problem, ProblemError, invalid
from greenroom.schemas.settings.setting_groups import MEGABYTE

MAX_FILE_BYTES = 20 * MEGABYTE  # Size limit of one image, document or recording, in bytes
MAX_TOTAL_BYTES = 50 * MEGABYTE  # Size limit of all files of a request, in bytes
MAX_URL = 8_192  # Longest URL of a file, in characters
MAX_NAME = 255  # Characters of a file name that are kept

DETAILS = get_args(ImageDetail)


class MediaReader:
    """Reads the files of one request, with size checks before decoding.

    URLs are kept in the parts; the files are fetched later.
    """

    def __init__(self) -> None:
        self._bytes = 0

    def image(self, url: str, field: str, detail: str | None = None) -> ImagePart | DocumentPart:
        """Return an image from a `data:` URL or an http(s) URL; a PDF becomes a document. Raises
        ProblemError: 400 that names the field.
        """
        looked_at = _detail(detail, f"{field.rpartition('.')[0]}.detail")
        if not is_data_url(url):
            return ImagePart(url=_address(url, field), detail=looked_at, param=field)
        media_type, base64 = _parse_data_url(url, field)
        kind = _kind(media_type, ("image", "document"), field)
        data = self._decode(base64, field)
        if kind == "document":
            return DocumentPart(data, param=field)
        return ImagePart(data, detail=looked_at, param=field)

    def encoded_image(self, base64: str, field: str, media_type: str | None = None) -> ImagePart:
        """Return an image from base64, with an optional media type. Raises ProblemError: 400 that names the
        field.
        """
        if media_type is not None and media_type not in IMAGE_TYPES:
            raise _wrong_type(media_type, "an image", IMAGE_TYPES, f"{field.rpartition('.')[0]}.media_type")
        if is_data_url(base64):
            image = self.image(base64, field)
            if not isinstance(image, ImagePart):
                raise invalid(f"`{field}` is a PDF where an image is wanted.", field)
            return image
        return ImagePart(self._decode(base64, field), param=field)

    def file(self, data: str, field: str, name: str | None = None) -> ImagePart | DocumentPart:
        """Return a PDF or an image from a `data:` URL or from base64. Raises ProblemError: 400 that names the
        field.
        """
        if is_data_url(data):
            media_type, data = _parse_data_url(data, field)
            _kind(media_type, ("image", "document"), field)
        content = self._decode(data, field)
        if is_pdf(content):
            return DocumentPart(content, name=_name(name), param=field)
        return ImagePart(content, param=field)

    def document(
        self, base64: str, field: str, name: str | None = None, media_type: str | None = None
    ) -> DocumentPart:
        """Return a PDF from base64. Raises ProblemError (400) that names the field."""
        if media_type is not None and media_type not in DOCUMENT_TYPES:
            raise _wrong_type(
                media_type, "a document", DOCUMENT_TYPES, f"{field.rpartition('.')[0]}.media_type"
            )
        content = self._decode(base64, field)
        if not is_pdf(content):
            raise invalid(f"`{field}` is not a PDF.", field)
        return DocumentPart(content, name=_name(name), param=field)

    def document_at(self, url: str, field: str, name: str | None = None) -> DocumentPart:
        """Return a PDF from an http(s) URL or a `data:` URL.

        Raises:
            ProblemError: 400 that names the field.
        """
        if is_data_url(url):
            media_type, base64 = _parse_data_url(url, field)
            _kind(media_type, ("document",), field)
            return self.document(base64, field, name)
        return DocumentPart(url=_address(url, field), name=_name(name), param=field)

    def recording(self, data: str, form: str, field: str) -> AudioPart:
        """Return audio from base64.

        Args:
            form: Audio format, `wav` or `mp3`.
            field: Path of the object with `data` and `format` in the request.

        Raises:
            ProblemError: 400 that names the field.
        """
        if form not in RECORDING_FORMATS:
            name = f"{field}.format"
            raise invalid(f"`{name}` must be one of {', '.join(map(repr, RECORDING_FORMATS))}.", name)
        field = f"{field}.data"
        if is_data_url(data):
            media_type, data = _parse_data_url(data, field)
            _kind(media_type, ("recording",), field)
        return AudioPart(self._decode(data, field), param=field)

    def _decode(self, base64: str, field: str) -> bytes:
        size = decoded_size(base64)
        check_file_size(size, field)
        self._bytes += size
        check_total_size(self._bytes, field)
        return decode_base64(base64, field)


def check_file_size(size: int, field: str) -> None:
    """Refuse a file beyond the size limit. Raises ProblemError (400) that names the field."""
    if size > MAX_FILE_BYTES:
        raise _too_large(
            f"`{field}` has {_megabytes(size)}, but a file may have at most", MAX_FILE_BYTES, field
        )


def check_total_size(size: int, field: str) -> None:
    """Refuse files beyond the size limit of a request. Raises ProblemError: 400 that names the field."""
    if size > MAX_TOTAL_BYTES:
        detail = f"With `{field}` the request's files have {_megabytes(size)}, but may have at most"
        raise _too_large(detail, MAX_TOTAL_BYTES, field)


def unknown_file(field: str) -> ProblemError:
    detail = f"`{field}` names an uploaded file, but this server keeps none: send the file itself."
    return invalid(detail, field, "unsupported_parameter")


def _too_large(detail: str, most: int, field: str) -> ProblemError:
    return ProblemError(Problem(400, "file_too_large", f"{detail} {_megabytes(most)}.", field))


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:.1f} MB" if size % MEGABYTE else f"{size // MEGABYTE} MB"


def _detail(value: str | None, field: str) -> ImageDetail:
    found: ImageDetail | None = next((detail for detail in DETAILS if detail == (value or "auto")), None)
    if found is None:
        raise invalid(f"`{field}` must be one of {', '.join(map(repr, DETAILS))}.", field)
    return found


def _kind(media_type: str, wanted: tuple[MediaKind, ...], field: str) -> MediaKind:
    for kind in wanted:
        if media_type in _TYPES[kind]:
            return kind
    taken = {"image": "JPEG, PNG, GIF, WebP or HEIC", "document": "a PDF", "recording": "WAV or MP3"}
    what = " or ".join(taken[each] for each in wanted)
    detail = f"`{field}` is of type {media_type[:80]!r}, but must be {what}."
    raise invalid(detail, field, "unsupported_content")


def _wrong_type(media_type: str, what: str, types: tuple[str, ...], field: str) -> ProblemError:
    known = ", ".join(map(repr, types))
    detail = f"`{field}` is {media_type[:80]!r}, but must be that of {what}: one of {known}."
    return invalid(detail, field, "unsupported_content")


def _address(url: str, field: str) -> str:
    if len(url) > MAX_URL:
        raise invalid(f"`{field}` has {len(url)} characters; an address has at most {MAX_URL}.", field)
    scheme = url.partition(":")[0].lower()
    if scheme not in ("http", "https") or "://" not in url:
        detail = f"`{field}` must be a `data:` URL with the file in it, or an address with https or http."
        raise invalid(detail, field)
    return url


def _name(name: str | None) -> str | None:
    return name[:MAX_NAME] if name else None


_SLICE = 262_144
"""Characters decoded per step, which holds the GIL for less than a millisecond; a multiple of 4."""
_WHITE_SPACE = "\n\r\t "


def decoded_size(text: str) -> int:
    """Return the decoded size of base64 text in bytes, without decoding it."""
    return (len(text) - sum(map(text.count, _WHITE_SPACE))) * 3 // 4 - text.count("=", -4)


def decode_base64(text: str, field: str) -> bytes:
    """Decode base64 text that is not empty. `text`: padded text in the standard alphabet; white space does
    not count. Raises ProblemError: 400 that names the field and the error.
    """
    for space in _WHITE_SPACE:
        text = text.replace(space, "")
    if not text:
        raise invalid(f"`{field}` is empty: it must hold a file's bytes as base64.", field)
    padding = text.find("=")
    # Python accepts excess padding at the end.
    if len(text) % 4 or -1 < padding < len(text) - 2:
        raise _not_base64(text, "it is not padded to a multiple of 4 characters with one or two `=`", field)
    decoded = bytearray()
    for start in range(0, len(text), _SLICE):
        try:
            decoded += binascii.a2b_base64(text[start : start + _SLICE], strict_mode=True)
        except ValueError as problem:
            raise _not_base64(text, str(problem).lower(), field) from None
    return bytes(decoded)


def _not_base64(text: str, why: str, field: str) -> ProblemError:
    if "-" in text or "_" in text:
        why = "it is of the alphabet for URLs (`-` and `_` in place of `+` and `/`)"
    return invalid(f"`{field}` is not valid base64: {why}.", field)


_LONGEST_HEAD = 256  # Limit on the characters before the comma; a media type with parameters has some forty


def is_data_url(text: str) -> bool:
    return text[:5].lower() == "data:"


def _parse_data_url(url: str, field: str) -> tuple[str, str]:
    """Return the media type of a `data:` URL, in lower case and without parameters, and its base64. Raises
    ProblemError (400) that names the field and the expected form.
    """
    end = url.find(",", 0, _LONGEST_HEAD)
    if end < 0:
        raise invalid(f"`{field}` is a data URL without a comma: {_EXPECTED}.", field)
    media_type, *parameters = (part.strip().lower() for part in url[len("data:") : end].split(";"))
    if not parameters or parameters[-1] != "base64":
        raise invalid(f"`{field}` is a data URL that is not marked as base64: {_EXPECTED}.", field)
    if not media_type:
        raise invalid(f"`{field}` is a data URL without a media type: {_EXPECTED}.", field)
    return media_type, url[end + 1 :]


_EXPECTED = "it must be `data:TYPE;base64,DATA`, such as `data:image/png;base64,iVBORw0…`"


MediaKind = Literal["image", "document", "recording"]

IMAGE_TYPES = ("image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp", "image/heic", "image/heif")
DOCUMENT_TYPES = ("application/pdf",)
RECORDING_TYPES = ("audio/wav", "audio/x-wav", "audio/wave", "audio/mpeg", "audio/mp3")
RECORDING_FORMATS = ("wav", "mp3")  # Recording formats by OpenAI's names
_TYPES: Mapping[MediaKind, tuple[str, ...]] = {
    "image": IMAGE_TYPES,
    "document": DOCUMENT_TYPES,
    "recording": RECORDING_TYPES,
}

"""Uploads too large to hold in memory, sent in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

GIGABYTE = 1 << 30
_BOUNDARY = "greenroom-hostile-boundary"


@attrs.frozen
class Upload:
    """A multipart form with one file, generated while it is sent.

    Args:
        fields: Form fields before the file.
        size: Size of the file in bytes.
        beginning: First bytes of the file; the rest is zeros.
        name: Name of the file; may be hostile.
    """

    fields: Mapping[str, str]
    size: int = GIGABYTE
    beginning: bytes = b""
    name: str = "speech.mp3"
    field: str = "file"
    media_type: str = "audio/mpeg"

    @property
    def headers(self) -> dict[str, str]:
        """Return the request headers."""
        return {
            "content-type": f"multipart/form-data; boundary={_BOUNDARY}",
            "content-length": str(len(self._head) + self.size + len(self._tail)),
        }

    def pieces(self, length: int = 1 << 16) -> Iterator[bytes]:
        """Yield the form's bytes, with at most `length` bytes of the file at once."""
        yield self._head
        left = self.size
        if self.beginning:
            yield self.beginning[:left]
            left -= min(len(self.beginning), left)
        zeros = bytes(length)
        while left:
            yield zeros[:left]
            left -= min(length, left)
        yield self._tail

    def whole(self) -> bytes:
        """Return the whole form, for small files."""
        return b"".join(self.pieces())

    @property
    def _head(self) -> bytes:
        parts = [
            f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in self.fields.items()
        ]
        file = f'content-disposition: form-data; name="{self.field}"; filename="{self.name}"\r\n'
        parts.append(f"--{_BOUNDARY}\r\n{file}content-type: {self.media_type}\r\n\r\n")
        return "".join(parts).encode()

    @property
    def _tail(self) -> bytes:
        return f"\r\n--{_BOUNDARY}--\r\n".encode()


def form(data: bytes, name: str = "speech.mp3", **fields: str) -> Upload:
    """Return a form with a file of exactly `data`."""
    return Upload(fields, len(data), data, name)


NAMES = (
    "../../../etc/passwd",
    "/etc/passwd",
    "a" * 5_000,
    "con.mp3",
    "name\\..\\x.mp3",
    "",
    ".",
    "\x00.mp3",
    "🦊.mp3",
)
"""File names that must not become paths."""

BROKEN_FORMS: Mapping[str, tuple[str, bytes]] = {
    "no boundary": ("multipart/form-data", b"--x\r\n\r\n--x--\r\n"),
    "empty boundary": ("multipart/form-data; boundary=", b"----\r\n"),
    "another boundary": (f"multipart/form-data; boundary={_BOUNDARY}", b"--x\r\n\r\nhello\r\n--x--\r\n"),
    "another boundary, long": (
        f"multipart/form-data; boundary={_BOUNDARY}",
        b"--x\r\n\r\n" + b"a" * 1_000_000 + b"\r\n--x--\r\n",
    ),
    "field in UTF-16": (
        f"multipart/form-data; boundary={_BOUNDARY}",
        f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="prompt"\r\n\r\n'.encode()
        + "ü".encode("utf-16")
        + f"\r\n--{_BOUNDARY}--\r\n".encode(),
    ),
    "name of a file in Latin-1": (
        f"multipart/form-data; boundary={_BOUNDARY}",
        f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="ü"\r\n\r\n'.encode(
            "latin-1"
        )
        + f"hello\r\n--{_BOUNDARY}--\r\n".encode(),
    ),
    "nothing": (f"multipart/form-data; boundary={_BOUNDARY}", b""),
    "no end": (
        f"multipart/form-data; boundary={_BOUNDARY}",
        f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\nhello'.encode(),
    ),
    "headers without end": (
        f"multipart/form-data; boundary={_BOUNDARY}",
        f"--{_BOUNDARY}\r\n".encode() + b"x: y\r\n" * 100_000,
    ),
    "headers of 20 kB": (
        f"multipart/form-data; boundary={_BOUNDARY}",
        f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="a"\r\nx: '.encode()
        + b"y" * 20_000
        + f"\r\n\r\nb\r\n--{_BOUNDARY}--\r\n".encode(),
    ),
    "100 parts": (
        f"multipart/form-data; boundary={_BOUNDARY}",
        f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="a"\r\n\r\nb\r\n'.encode() * 100
        + f"--{_BOUNDARY}--\r\n".encode(),
    ),
    "100,000 parts": (
        f"multipart/form-data; boundary={_BOUNDARY}",
        f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="a"\r\n\r\nb\r\n'.encode() * 100_000
        + f"--{_BOUNDARY}--\r\n".encode(),
    ),
    "long boundary": (f"multipart/form-data; boundary={'b' * 5_000}", b"--" + b"b" * 5_000 + b"--\r\n"),
    "field of 5 MB": (
        f"multipart/form-data; boundary={_BOUNDARY}",
        f'--{_BOUNDARY}\r\ncontent-disposition: form-data; name="model"\r\n\r\n'.encode()
        + b"a" * 5_000_000
        + f"\r\n--{_BOUNDARY}--\r\n".encode(),
    ),
    "JSON": ("application/json", b'{"model": "x", "file": "speech.mp3"}'),
}
"""Content types and bodies that are no form, or too costly a form; each to be refused with a 4xx."""

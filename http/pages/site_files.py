"""The files of the pages, as they lie in the package: bytes, gzip, type and entity tag."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import attrs

SITE = Path(__file__).parent / "site"
"""Folder of the files that browsers ask for."""
COMPRESSED = Path(__file__).parent / "compressed"
"""Folder of the same files under the same names with `.gz`: `make pages` writes them."""
INDEX = "index.html"
"""Name of the document that loads all others."""
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@attrs.frozen
class SiteFile:
    """A file of the pages.

    Args:
        body: Its bytes.
        compressed: The same, compressed with gzip.
        content_type: Its media type.
        tag: Digest of its bytes, for entity tags.
    """

    body: bytes
    compressed: bytes
    content_type: str
    tag: str


@cache
def site_files() -> Mapping[str, SiteFile]:
    """Return all files by name, with `/` between folders; no other file is served."""
    found: dict[str, SiteFile] = {}
    for path in sorted(COMPRESSED.rglob("*.gz")):
        name = path.relative_to(COMPRESSED).as_posix().removesuffix(".gz")
        compressed = path.read_bytes()
        body = gzip.decompress(compressed)
        tag = hashlib.sha256(body).hexdigest()[:20]
        found[name] = SiteFile(body, compressed, _TYPES[Path(name).suffix], tag)
    return found

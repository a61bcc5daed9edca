"""Hostile files as pieces of JSON and as files of forms; each is made once."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import cache

from greenroom.tests.support.hostile import documents, pictures, sounds

FILES: Mapping[str, Callable[[], bytes]] = {
    **{
        f"image: {name}": make
        for name, make in {**pictures.REFUSED, **pictures.ODD, **pictures.LARGE}.items()
    },
    **{f"document: {name}": make for name, make in {**documents.REFUSED, **documents.ODD}.items()},
    **{f"sound: {name}": make for name, make in {**sounds.REFUSED, **sounds.ODD}.items()},
    "image: plain": pictures.photo,
    "document: plain": documents.document,
    "sound: plain": sounds.tone,
}

REFUSED = frozenset(
    {
        *(f"image: {name}" for name in pictures.REFUSED),
        *(f"document: {name}" for name in documents.REFUSED),
        *(f"sound: {name}" for name in sounds.REFUSED),
    }
)
"""Files that must be refused with a 4xx."""

_URLS = {"image": "data:image/png;base64,", "document": "data:application/pdf;base64,"}


@cache
def content(file: str) -> bytes:
    """Return the bytes of a file."""
    return FILES[file]()


def names(kind: str) -> tuple[str, ...]:
    """Return the names of files of a type: `image`, `document` or `sound`."""
    return tuple(file for file in FILES if file.startswith(f"{kind}: "))


def _encoded(file: str, prefix: str) -> Callable[[int], str]:
    return lambda _size: prefix + base64.b64encode(content(file)).decode()


ENCODED: Mapping[str, Callable[[int], str]] = {
    **{f"base64 of {file}": _encoded(file, "") for file in FILES},
    **{f"URL of {file}": _encoded(file, prefix) for kind, prefix in _URLS.items() for file in names(kind)},
}
"""Makers of texts that hold a file; they ignore the size."""

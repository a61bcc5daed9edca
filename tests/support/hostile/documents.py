"""Hostile PDFs, made of single objects."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from greenroom.tests.support.hostile import pngs

_PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
"""Padding of passwords (PDF 32000-1:2008, algorithm 2)."""


def pdf(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """Return a PDF of objects numbered from 1, with a correct cross-reference table.

    Args:
        trailer: Further entries of the trailer; the first object is the root.
    """
    whole = b"%PDF-1.7\n"
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(whole))
        whole += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    last = b"trailer\n<</Size %d/Root 1 0 R%b>>\n" % (len(objects) + 1, trailer)
    return whole + head + table + last + b"startxref\n%d\n%%%%EOF\n" % len(whole)


def document(
    pages: int = 1,
    *,
    box: str = "0 0 200 200",
    content: bytes = b"0 0 1 rg 20 20 100 100 re f",
    extra: bytes = b"",
    trailer: bytes = b"",
) -> bytes:
    """Return a document of equal pages.

    Args:
        box: Media box of each page, in points.
        content: Content stream of each page; a whole stream object if it begins with `<<`.
        extra: Further entries of the catalog.
    """
    stream = content if content.startswith(b"<<") else _stream(content)
    kids = b"4 0 R " + b"".join(b"%d 0 R " % number for number in range(5, 4 + pages))
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[%b]/Contents 3 0 R>>" % box.encode()
    catalog = b"<</Type/Catalog/Pages 2 0 R%b>>" % extra
    tree = b"<</Type/Pages/Count %d/Kids[%b]>>" % (pages, kids)
    return pdf([catalog, tree, stream, *[page] * pages], trailer)


def encrypted() -> bytes:
    """Return a document that needs a password (RC4, 40 bits, both passwords `secret`)."""
    ident = bytes(range(16))
    padded = (b"secret" + _PADDING)[:32]
    owner = _rc4(hashlib.md5(padded).digest()[:5], padded)
    rights = (-4).to_bytes(4, "little", signed=True)
    user = _rc4(hashlib.md5(padded + owner + rights + ident).digest()[:5], _PADDING)
    lock = b"/Encrypt<</Filter/Standard/V 1/R 2/P -4/O<%b>/U<%b>>>/ID[<%b><%b>]" % (
        *(owner.hex().encode(), user.hex().encode()),
        *(ident.hex().encode(), ident.hex().encode()),
    )
    return document(trailer=lock)


def inflating(size: int = 1 << 30) -> bytes:
    """Return a document with a page whose content stream inflates to `size` zeros."""
    data = pngs.compressed_zeros(size)
    return document(content=b"<</Length %d/Filter/FlateDecode>>stream\n%b\nendstream" % (len(data), data))


def slow_page(operations: int = 2_000_000) -> bytes:
    """Return a document whose page takes `operations` drawing operations, compressed."""
    data = zlib.compress(b"q 1 0 0 1 1 1 cm 0 0 90 90 re f Q " * operations)
    return document(content=b"<</Length %d/Filter/FlateDecode>>stream\n%b\nendstream" % (len(data), data))


def nested_forms(depth: int = 40) -> bytes:
    """Return a document with a cycle of `depth` forms, each of which draws the next one twice."""

    def form(number: int) -> bytes:
        following = 4 + (number + 1) % depth
        head = b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</F %d 0 R>>>>" % following
        return b"<<%b/Length 12>>stream\n/F Do /F Do \nendstream" % head

    page = (
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents %d 0 R/Resources<</XObject<</F 4 0 R>>>>>>"
    )
    tree = b"<</Type/Pages/Count 1/Kids[3 0 R]>>"
    forms = [form(number) for number in range(depth)]
    return pdf([b"<</Type/Catalog/Pages 2 0 R>>", tree, page % (4 + depth), *forms, _stream(b"/F Do")])


def with_attachment() -> bytes:
    """Return a document with an attached archive."""
    names = b"/Names<</EmbeddedFiles<</Names[(a.zip) <</Type/Filespec/F(a.zip)/EF<</F 3 0 R>>>>]>>>>"
    return document(extra=names)


def circular_pages() -> bytes:
    """Return a document whose page tree contains itself."""
    return pdf([b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count 9/Kids[2 0 R 2 0 R]/Parent 2 0 R>>"])


def promised_pages(count: int = 2_000_000_000) -> bytes:
    """Return a document that claims `count` pages and has one."""
    return document().replace(b"/Count 1/", b"/Count %d/" % count)


def acting() -> bytes:
    """Return a document that tries to run a script and to open other files when opened."""
    return document(
        extra=b"/OpenAction<</S/JavaScript/JS(app.launchURL\\('http://127.0.0.1/'\\))>>"
        b"/AA<</WC<</S/Launch/F(/etc/passwd)>>>>"
    )


REFUSED: Mapping[str, Callable[[], bytes]] = {
    "nothing": bytes,
    "text": lambda: b"This is not a PDF. " * 100,
    "header alone": lambda: b"%PDF-1.7\n",
    "broken": lambda: document().replace(b"obj", b"xxx"),
    "truncated": lambda: document(20)[:120],
    "encrypted": encrypted,
    "without pages": partial(pdf, [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count 0/Kids[]>>"]),
    "circular pages": circular_pages,
    "10,000 pages": partial(document, 10_000),
}
"""Documents to be refused with a 4xx, by name."""

ODD: Mapping[str, Callable[[], bytes]] = {
    "huge page": partial(document, box="0 0 1000000000 1000000000"),
    "wide page": partial(document, box="0 0 1000000 1"),
    "page of no size": partial(document, box="0 0 0 0"),
    "page upside down": partial(document, box="200 200 0 0"),
    "page of no numbers": partial(document, box="nan inf -inf 1e999"),
    "2,000,000,000 promised pages": promised_pages,
    "page of 1 GB": inflating,
    "page of 2,000,000 operations": slow_page,
    "script": acting,
    "attachment": with_attachment,
    "forms within forms, in circles": nested_forms,
    "picture named PDF": pngs.png,
}
"""Documents that may be rendered, or refused with a 4xx, at no more than a page's cost."""


def _stream(data: bytes) -> bytes:
    return b"<</Length %d>>stream\n%b\nendstream" % (len(data), data)


def _rc4(key: bytes, data: bytes) -> bytes:
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    result = bytearray()
    i = j = 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        result.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(result)

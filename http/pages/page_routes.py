"""`GET /`: the pages for a browser, a line of text for everybody else; `GET /pages/...`: their files."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import attrs
from quart import Blueprint, Response, request

from greenroom.http.answering.protocols import HTML, TEXT, described
from greenroom.http.guard.keys import PAGES_PREFIX
from greenroom.schemas.problems import Problem, ProblemError

WELCOME = (
    "Greenroom is running. OpenAI clients: base_url is this address with /v1; Anthropic clients: without.\n"
)
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' blob:; media-src 'self' blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Policy of every document and script (W3C CSP level 3): nothing runs or loads that is not of this server."""
_TYPED = {"/chat": "#chat", "/playground": "#chat", "/ui": "", "/index.html": "", "/admin": "#control"}
"""Paths that people type, and the places of the pages that they mean."""
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "referrer-policy": "no-referrer",
    # Kept, and asked after each time: the answer to a known tag has no body.
    "cache-control": "no-cache",
}


def page_routes() -> Blueprint:
    routes = Blueprint("pages", __name__)

    @routes.get("/")
    @described("Show the pages to a browser, and say to others that the server runs", media=(TEXT, HTML))
    async def root() -> Response:
        if _wants_html():
            response = _response(site_files()[INDEX])
        else:
            response = Response(WELCOME, content_type=f"{TEXT}; charset=utf-8")
        response.vary.add("Accept")
        return response

    @routes.get(f"{PAGES_PREFIX}<path:name>")
    @described("Serve a file of the pages", media=("text/javascript", "text/css"), problems=(404,))
    async def file(name: str) -> Response:
        found = site_files().get(name)
        if found is None:
            raise ProblemError(Problem(404, "not_found", "The pages have no such file."))
        return _response(found)

    return routes


def lead_to_pages() -> Response | None:
    """Return a redirection of a browser from a path that people type to the pages; None for all else."""
    place = _TYPED.get(request.path.removesuffix("/"))
    if place is None or request.method not in ("GET", "HEAD") or not _wants_html():
        return None
    return Response(b"", status=302, headers={"location": f"{request.root_path}/{place}", "vary": "Accept"})


def _wants_html() -> bool:
    # Clients that take anything are programs: browsers name the type.
    return any(kind == HTML and quality > 0 for kind, quality in request.accept_mimetypes)


def _response(file: SiteFile) -> Response:
    zipped = request.accept_encodings.quality("gzip") > 0
    response = Response(file.compressed if zipped else file.body, content_type=file.content_type)
    response.headers.update(_HEADERS)
    response.vary.add("Accept-Encoding")
    response.set_etag(f"{file.tag}-gzip" if zipped else file.tag)
    if zipped:
        response.headers["content-encoding"] = "gzip"
    if request.if_none_match.contains_weak(response.get_etag()[0] or ""):
        response.status_code = 304
        response.set_data(b"")
    return response


SITE = Path(__file__).parent / "site"  # Folder of the files that browsers ask for
COMPRESSED = Path(__file__).parent / "compressed"
"""Folder of the same files under the same names with `.gz`: `make pages` writes them."""
INDEX = "index.html"  # Name of the document that loads all others
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@attrs.frozen
class SiteFile:
    """A file of the pages."""

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

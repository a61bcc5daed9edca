"""The routes of the pages: a browser's document, everybody else's line of text, and the files."""

from __future__ import annotations

import gzip
import hashlib
import re

import pytest

from greenroom.http.guard.keys import PAGES_PREFIX
from greenroom.http.pages.page_routes import COMPRESSED, CONTENT_SECURITY_POLICY, INDEX, SITE, site_files
from greenroom.tests.support.packages.locked import ROOT
from greenroom.tests.support.pages.compress_pages import LARGEST
from greenroom.tests.support.servers.http_servers import Served, fetch

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
SOURCES = {path.relative_to(SITE).as_posix(): path for path in SITE.rglob("*") if path.is_file()}
OWN = {name: path.read_text() for name, path in SOURCES.items() if not name.startswith("vendor/")}


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "text/plain", "text/html;q=0", "text/*"])
async def test_programs_get_a_line_of_text(server_without_model: Served, accept: str | None) -> None:
    headers = {} if accept is None else {"accept": accept}
    found = await fetch(server_without_model.server, "GET", "/", **headers)
    assert (found.status, found.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert found.body.startswith(b"Greenroom is running.")
    assert found.headers["vary"] == "Accept"


async def test_browsers_get_the_pages_and_a_policy(server_without_model: Served) -> None:
    found = await fetch(server_without_model.server, "GET", "/", accept=BROWSER)
    assert found.body == SOURCES[INDEX].read_bytes()
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert found.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert {name.strip() for name in found.headers["vary"].split(",")} == {"Accept", "Accept-Encoding"}


@pytest.mark.parametrize(
    ("path", "place"),
    [("/chat", "#chat"), ("/ui/", ""), ("/admin", "#control"), ("/playground", "#chat"), ("/index.html", "")],
)
async def test_paths_that_people_type_lead_browsers_alone_to_the_pages(
    server_without_model: Served, path: str, place: str
) -> None:
    led = await fetch(server_without_model.server, "GET", path, accept=BROWSER)
    assert (led.status, led.headers["location"]) == (302, f"/{place}")
    for method, accept in (("GET", "*/*"), ("GET", "application/json"), ("POST", BROWSER)):
        refused = await fetch(server_without_model.server, method, path, accept=accept)
        assert refused.json()["error"]["code"] == "not_found"


async def test_a_file_is_sent_compressed_and_once(server_without_model: Served) -> None:
    path = f"{PAGES_PREFIX}app.js"
    plain = await fetch(server_without_model.server, "GET", path)
    zipped = await fetch(server_without_model.server, "GET", path, accept_encoding="gzip, br")
    assert gzip.decompress(zipped.body) == plain.body == SOURCES["app.js"].read_bytes()
    assert zipped.headers["content-encoding"] == "gzip"
    assert plain.headers["content-type"] == "text/javascript; charset=utf-8"
    assert plain.headers["etag"] != zipped.headers["etag"]
    for found, encoding in ((plain, "identity"), (zipped, "gzip")):
        asked = {"if_none_match": found.headers["etag"], "accept_encoding": encoding}
        again = await fetch(server_without_model.server, "GET", path, **asked)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", found.headers["etag"])
        assert again.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    changed = await fetch(server_without_model.server, "GET", path, if_none_match='"other"')
    assert (changed.status, changed.body) == (200, plain.body)


@pytest.mark.parametrize(
    "name", ["gone.js", "../site_files.py", "%2e%2e/site_files.py", "..%2fsite_files.py", "vendor", "app.js/"]
)
async def test_other_names_are_nowhere(server_without_model: Served, name: str) -> None:
    found = await fetch(server_without_model.server, "GET", PAGES_PREFIX + name)
    assert found.status == 404
    assert found.json()["error"]["code"] == "not_found"


def test_the_compressed_files_are_those_of_the_site_and_small_together() -> None:
    compressed = {path.relative_to(COMPRESSED).as_posix(): path for path in COMPRESSED.rglob("*.gz")}
    assert {f"{name}.gz" for name in SOURCES} == compressed.keys(), "run `make pages`"
    for name, path in SOURCES.items():
        zipped = compressed[f"{name}.gz"].read_bytes()
        assert gzip.decompress(zipped) == path.read_bytes(), f"{name}: run `make pages`"
    assert sum(path.stat().st_size for path in compressed.values()) < LARGEST
    assert site_files().keys() == SOURCES.keys()


def test_the_vendored_files_are_the_published_ones_with_their_licences() -> None:
    note = (ROOT / "notes" / "licences.md").read_text()
    rows = re.findall(
        r"^\| (\S+) (\S+) \| `vendor/(\S+)` \| (\S.*?) \| `([0-9a-f]{64})` \|$", note, re.MULTILINE
    )
    listed = {f"vendor/{file}": digest for _, _, file, _, digest in rows}
    vendored = {name for name in SOURCES if name.startswith("vendor/") and name.endswith(".js")}
    assert listed == {name: hashlib.sha256(SOURCES[name].read_bytes()).hexdigest() for name in vendored}
    texts = SOURCES["vendor/LICENSES.txt"].read_text()
    for package, version, _, licence, _ in rows:
        assert f"{package.partition('/')[0]} {version}" in texts
        assert licence in ("MIT, BSD-2-Clause", "Apache-2.0, MIT")


def test_no_script_turns_text_into_html_or_code() -> None:
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|setAttribute\('on"
    assert [name for name, text in OWN.items() if re.search(unsafe, text)] == []
    assert [name for name, text in OWN.items() if "https://" in text or "//cdn" in text] == []


def test_every_module_that_is_imported_is_a_file_and_every_file_is_used() -> None:
    used = {INDEX}
    for name, text in OWN.items():
        for found in re.findall(r"""(?:from|import|import\()\s*\(?'(\.[^']+)'""", text):
            used.add((SITE / name).parent.joinpath(found).resolve().relative_to(SITE.resolve()).as_posix())
        used.update(re.findall(r'(?:href|src)="pages/([^"]+)"', text))
    assert used == SOURCES.keys() - {"vendor/LICENSES.txt"}

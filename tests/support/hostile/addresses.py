"""URLs that a server must not fetch, and a local server that records the requests it gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

import attrs

from greenroom.tests.support.hostile import pngs

PRIVATE = (
    "http://127.0.0.1",
    "http://127.0.0.1:22/",
    "http://127.1/",
    "http://0/",
    "http://0.0.0.0/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://127.0.0.1./",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://localhost.localdomain/",
    "http://ip6-localhost/",
    "http://[::1]",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25lo]/",
    "http://[fc00::1]/",
    "http://169.254.169.254",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://metadata.google.internal/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://①②⑦.⓪.⓪.①/",
)
"""Addresses of this machine and its network, in the spellings that some parsers let through."""

FOREIGN = (
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "file://localhost/etc/passwd",
    "/etc/passwd",
    "../../etc/passwd",
    "C:\\Windows\\win.ini",
    "\\\\127.0.0.1\\share\\a.png",
    "//127.0.0.1/a.png",
    "ftp://127.0.0.1/a.png",
    "gopher://127.0.0.1:70/_",
    "dict://127.0.0.1:11211/",
    "jar:http://127.0.0.1!/a.png",
    "javascript:alert(1)",
    "blob:http://127.0.0.1/1",
    "unix:///var/run/docker.sock",
    "concat:/etc/passwd",
)
"""Unsupported schemes, and file paths."""

MALFORMED = (
    "http://",
    "https://",
    "http:///a.png",
    "http://:80/",
    "http://example.com:99999/",
    "http://example.com:port/",
    "http://[::1/",
    "http://exa mple.com/",
    "http://example.com\r\nX-Evil: 1/",
    "http://\x00/",
    "http://user:secret@127.0.0.1/",
    "https://user:secret@example.com/a.png",
    "https://example.com@127.0.0.1/",
    "https://127.0.0.1\\@example.com/",
    "https://127.0.0.1#@example.com/",
    "https://" + "a" * 300 + ".example/",
    "https://example.com/" + "a" * 100_000,
    "https://xn--/",
    "https://.example.com/",
    "not a url",
    "",
    " ",
)
"""Malformed URLs, and URLs with credentials."""


def as_https(url: str) -> str:
    """Return the URL with `https`, which settings may allow."""
    return url.replace("http://", "https://", 1)


def all_refused() -> tuple[str, ...]:
    """Return every URL to be refused with a 4xx whatever the settings allow."""
    return (*PRIVATE, *map(as_https, PRIVATE), *FOREIGN, *MALFORMED)


@attrs.frozen
class Trap:
    """A local server that records its requests.

    Paths: `/image.png` is an image, `/redirect/URL` (percent-encoded) redirects to URL, `/loop` to itself,
    `/endless` sends an image without end, `/slow` a byte each second, `/silent` nothing, `/huge` announces a
    terabyte, `/page` is HTML, `/broken` is no HTTP.
    """

    address: str
    asked: list[str] = attrs.field(factory=list)
    hosts: list[str] = attrs.field(factory=list)


@contextmanager
def trap() -> Iterator[Trap]:
    """Run the server on 127.0.0.1 and a free port."""
    leave = threading.Event()
    asked: list[str] = []
    hosts: list[str] = []

    class Handler(_Handler):
        paths, named, left = asked, hosts, leave

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield Trap(f"http://127.0.0.1:{server.server_port}", asked, hosts)
    finally:
        leave.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    paths: list[str]
    named: list[str]
    left: threading.Event

    def do_GET(self) -> None:
        self.named.append(str(self.headers["host"]))
        self.paths.append(self.path)
        with suppress(OSError):
            self._answer()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        match self.path.partition("/redirect/"):
            case ("", "/redirect/", target):
                self._begin(302, Location=unquote(target))
                return
        match self.path.partition("?")[0]:
            case "/loop":
                self._begin(302, Location=self.path)
            case "/endless":
                self._begin(200, **{"Content-Type": "image/png"})
                self.wfile.write(pngs.png())
                while not self.left.is_set():
                    self.wfile.write(bytes(65_536))
            case "/slow":
                self._begin(200, **{"Content-Type": "image/png"})
                for byte in pngs.png():
                    self.wfile.write(bytes([byte]))
                    if self.left.wait(1.0):
                        return
            case "/silent":
                self.left.wait()
            case "/huge":
                self._begin(200, **{"Content-Type": "image/png", "Content-Length": str(1 << 40)})
                self.left.wait()
            case "/page":
                self._begin(200, **{"Content-Type": "text/html"})
                self.wfile.write(b"<html></html>")
            case "/broken":
                self.wfile.write(b"\x00\x01 not HTTP\r\n\r\n")
            case _:
                self._begin(200, **{"Content-Type": "image/png"})
                self.wfile.write(pngs.png())

    def _begin(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

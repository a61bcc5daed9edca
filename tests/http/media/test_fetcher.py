"""Files given by URL: allowed hosts and redirects, time limits and size limits."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trio

from greenroom.http.media import fetcher
from greenroom.http.media.fetcher import MAX_ADDRESSES, Fetcher, is_public
from greenroom.http.media.media_reader import MAX_FILE_BYTES, MAX_TOTAL_BYTES
from greenroom.schemas.messages.messages import ContentPart, DocumentPart, ImagePart, Message, TextPart
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.setting_groups import Fetching
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.watched_engines import until
from greenroom.tests.support.hostile import addresses, pngs
from greenroom.tests.support.hostile.addresses import Trap, trap
from greenroom.tests.support.servers.localhost_certificate import CERTIFICATE, KEY


def asked(*parts: ContentPart) -> InferenceRequest:
    return InferenceRequest("r", ModelKey("m"), ChatInput((Message("user", parts),)))


def image(url: str, param: str = "p") -> ImagePart:
    return ImagePart(url=url, param=param)


def fetching(mode: Fetching = "http", *hosts: str) -> Fetcher:
    return Fetcher(Settings(images_fetch=mode, images_fetch_hosts=hosts))


async def complete(
    by: Fetcher, *parts: ContentPart, hold: Callable[[int], None] = lambda _: None
) -> tuple[ContentPart, ...]:
    request = await by.complete(asked(*parts), lambda: hold)
    assert isinstance(request.input, ChatInput)
    return request.input.messages[0].content


async def refusal(by: Fetcher, *parts: ContentPart) -> Problem:
    with trio.fail_after(300), pytest.raises(ProblemError) as caught:
        await complete(by, *parts)
    return caught.value.problem


@pytest.fixture(scope="module")
def server() -> Iterator[Trap]:
    with trap() as trapped:
        yield trapped


LOCAL = "127.0.0.1"


async def test_files_are_fetched_where_the_operator_allows_it(server: Trap) -> None:
    text, sent, document = TextPart("a"), ImagePart(b"b"), DocumentPart(url=f"{server.address}/image.png?2")
    before = len(server.asked)
    got = await complete(
        fetching("http", LOCAL),
        text,
        image(f"{server.address}/image.png"),
        sent,
        image(f"{server.address}/image.png"),
        document,
    )
    png = ImagePart(pngs.png())
    assert got == (text, png, sent, png, DocumentPart(pngs.png()))
    assert sorted(server.asked[before:]) == ["/image.png", "/image.png?2"]


async def test_fetching_is_off_unless_it_is_allowed(server: Trap) -> None:
    before = len(server.asked)
    off = await refusal(fetching("off", LOCAL), image(f"{server.address}/image.png"))
    assert (off.status, off.param) == (400, "p")
    assert "[images] fetch" in off.detail
    encrypted = await refusal(fetching("https", LOCAL), image(f"{server.address}/image.png"))
    assert "without https" in encrypted.detail
    assert len(server.asked) == before


@pytest.mark.parametrize("mode", ["http", "https"])
async def test_no_client_leads_a_server_to_a_private_network(mode: Fetching) -> None:
    by = fetching(mode)
    for url in addresses.all_refused():
        problem = await refusal(by, image(url))
        assert (problem.status, problem.param) == (400, "p"), url


async def test_a_name_is_judged_by_what_it_means_and_redirects_are_judged_again(server: Trap) -> None:
    before = len(server.asked)
    # "localhost" is trusted by name. It redirects to an address, which is another host and not trusted.
    named = server.address.replace(LOCAL, "localhost")
    by = fetching("http", "localhost")
    for target in (
        f"{server.address}/image.png",
        "http://169.254.169.254/",
        "file:///etc/passwd",
        "//[::1]:x/",
    ):
        problem = await refusal(by, image(f"{named}/redirect/{quote(target, safe='')}"))
        assert (problem.status, problem.code) == (400, "file_not_fetched"), target
    assert all("redirect" in path for path in server.asked[before:])
    assert await complete(by, image(f"{named}/redirect/{quote('/image.png', safe='')}")) == (
        ImagePart(pngs.png()),
    )
    encrypted = await refusal(
        fetching("https", "localhost"), image(named.replace("http:", "https:") + "/image.png")
    )
    assert "could not be fetched" in encrypted.detail


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/loop", "redirected more than"),
        ("/endless", "may have at most 20 MB"),
        ("/huge", "may have at most 20 MB"),
        ("/broken", "could not be fetched"),
    ],
)
async def test_what_a_server_sends_is_bounded(server: Trap, path: str, says: str) -> None:
    problem = await refusal(fetching("http", LOCAL), image(f"{server.address}{path}"))
    assert problem.status == 400
    assert says in problem.detail


async def test_what_a_server_is_slow_to_send_is_given_up(
    server: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "FETCH_SECONDS", 0.3)
    for path in ("/slow", "/silent"):
        problem = await refusal(
            fetching("http", LOCAL), ImagePart(b"brought"), image(f"{server.address}{path}", "q")
        )
        assert (problem.status, problem.param) == (400, "q")
        assert "was not there after" in problem.detail


async def test_a_slow_server_holds_up_no_other_request(server: Trap) -> None:
    by = fetching("http", LOCAL)
    slow = [image(f"{server.address}/silent?{number}") for number in range(MAX_ADDRESSES)]
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(complete, by, *slow)
        with trio.fail_after(300):
            await until(lambda: sum("/silent?" in path for path in server.asked) >= 12)
            assert await complete(by, image(f"{server.address}/image.png")) == (ImagePart(pngs.png()),)
        nursery.cancel_scope.cancel("the others may go")


async def test_a_name_is_looked_up_once(server: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []
    look_up = socket.getaddrinfo

    def rebinding(host: Any, port: Any, *rest: Any, **options: Any) -> Any:
        if host != "rebinding.example":
            return look_up(host, port, *rest, **options)
        looked_up.append(host)
        return look_up(LOCAL if len(looked_up) == 1 else "169.254.169.254", port, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    named = server.address.replace(LOCAL, "rebinding.example")
    got = await complete(fetching("http", "Rebinding.example."), image(f"{named}/image.png"))
    assert (got, looked_up) == ((ImagePart(pngs.png()),), ["rebinding.example"])


async def test_a_server_is_told_its_own_name(server: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    look_up, named = socket.getaddrinfo, "2600::1"

    def leading_here(host: Any, *rest: Any, **options: Any) -> Any:
        return look_up(LOCAL if host == named else host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", leading_here)
    url = f"{server.address}/image.png"
    await complete(fetching("http", LOCAL, named), image(url), image(url.replace(LOCAL, f"[{named}]")))
    port = server.address.rpartition(":")[2]
    assert sorted(server.hosts[-2:]) == [f"{LOCAL}:{port}", f"[{named}]:{port}"]


async def test_one_failure_gives_up_the_others(server: Trap) -> None:
    with trio.fail_after(300):
        problem = await refusal(
            fetching("http", LOCAL), image(f"{server.address}/silent?x"), image("http://10.0.0.1/", "q")
        )
    assert problem.param == "q"


async def test_the_files_of_a_request_are_bounded_together(server: Trap) -> None:
    by = fetching("http", LOCAL)
    full = ImagePart(bytes(MAX_TOTAL_BYTES - 10))
    problem = await refusal(by, full, image(f"{server.address}/image.png"))
    assert problem.code == "file_too_large"
    many = [image(f"{server.address}/image.png?{number}") for number in range(MAX_ADDRESSES + 1)]
    assert "may name" in (await refusal(by, *many)).detail
    held: list[int] = []
    await complete(by, ImagePart(b"brought"), image(f"{server.address}/image.png"), hold=held.append)
    assert held[-1] == len(pngs.png())

    def no_room(_: int) -> None:
        raise ProblemError(Problem(503, "too_many_bodies", "no room"))

    with pytest.raises(ProblemError, match="no room"):
        await complete(by, image(f"{server.address}/image.png"), hold=no_room)


@contextmanager
def answering(
    status: int, body: bytes, headers: Mapping[str, str] = {}, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((LOCAL, 0), Handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://{LOCAL}:{server.server_port}/a.png"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "headers", "says"),
    [
        (404, b"no", {}, "status 404"),
        (500, b"", {}, "status 500"),
        (200, b"", {}, "empty"),
        (200, gzip.compress(bytes(1000), mtime=0), {"Content-Encoding": "gzip"}, "compressed"),
        (302, b"", {}, "status 302"),
        (302, b"", {"Location": "http://[::1"}, "no URL"),
        (302, b"", {"Location": "http://a\tb/"}, ""),
        (200, b"abc", {"Content-Length": "-5"}, ""),
        (200, b"abc", {"Content-Length": str(MAX_FILE_BYTES + 1)}, "may have at most"),
        (200, b"abc", {"Content-Length": "9" * 400}, ""),
        (200, b"abc", {"Content-Length": "10"}, "could not be fetched"),
    ],
)
async def test_odd_answers_are_a_clear_400(
    status: int, body: bytes, headers: dict[str, str], says: str
) -> None:
    with answering(status, body, headers) as url:
        problem = await refusal(fetching("http", LOCAL), image(url))
    assert (problem.status, problem.param) == (400, "p")
    assert says in problem.detail


async def test_by_https_the_name_of_a_host_is_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    by = fetching("https", LOCAL, "localhost")
    with answering(200, pngs.png(), tls=tls) as url:
        by_address, by_name = url.replace("http:", "https:"), f"https://localhost:{url.split(':')[2]}"
        for trusted in (False, True):
            fetcher._read_certificates.cache_clear()
            if trusted:
                monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
                assert await complete(by, image(by_name)) == (ImagePart(pngs.png()),)
            else:
                assert "could not be fetched" in (await refusal(by, image(by_name))).detail
            assert "could not be fetched" in (await refusal(by, image(by_address))).detail
    fetcher._read_certificates.cache_clear()


async def test_a_pdf_at_an_images_address_is_a_document() -> None:
    with answering(200, b"%PDF-1.7", {"Content-Type": "image/png"}) as url:
        assert await complete(fetching("http", LOCAL), image(url)) == (DocumentPart(b"%PDF-1.7"),)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.2", "169.254.169.254", "172.16.0.1", "192.0.0.1"),
        *("192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "203.0.113.1", "224.0.0.1", "240.0.0.1"),
        *("255.255.255.255", "::", "::1", "::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::808:808", "64:ff9b:1::1"),
        *(
            "2002:0808:0808::1",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fe80::1",
            "fe80::1%lo",
            "fec0::1",
            "ff02::1",
        ),
        *("100::1", "3fff::1", "5f00::1", "example.org", "", "8.8.8.8%lo", "2600::1%lo"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001::1"])
def test_addresses_that_are(address: str) -> None:
    assert is_public(address)

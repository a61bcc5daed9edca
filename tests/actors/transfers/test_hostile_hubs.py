"""Hubs that mean harm: answers without an end, compressed or misleading ones, and traps in the cache."""

from __future__ import annotations

import json
import os
import resource
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trio

from greenroom.actors.transfers.fetch_model import Wish, fetch_model
from greenroom.engine.catalog.hub import repository
from greenroom.engine.catalog.hub import repository as search
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.servers.hub_server import COMMIT, digest_of

NAME = "org/model"
CONFIG = b'{"model_type": "llama"}'
Answer = Callable[[BaseHTTPRequestHandler], None]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    tree: Answer
    info: Answer
    file: Answer

    def do_GET(self) -> None:
        kind = type(self)
        answer = kind.tree if "/tree/" in self.path else kind.info if "/api/" in self.path else kind.file
        try:
            answer(self)
        except OSError:  # the client has left
            self.close_connection = True

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass


def send(content: bytes, status: int = 200, **headers: str) -> Answer:
    """Return an answer of some bytes; underscores in names of headers mean hyphens."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"content_length": str(len(content)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(content)

    return answer


INFO = send(json.dumps({"id": NAME, "modelId": NAME, "sha": COMMIT, "siblings": []}).encode())
FILE = send(CONFIG)


def endless(begin: bytes, piece: bytes) -> Answer:
    """Return an answer that does not end."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(begin), begin))
        while True:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    return answer


def bomb(handler: BaseHTTPRequestHandler) -> None:
    """Answer with a list of a gigabyte of spaces in a megabyte."""
    packer = zlib.compressobj(wbits=31)
    # What stands between two full flushes may be repeated.
    packed = packer.compress(b"[") + packer.flush(zlib.Z_FULL_FLUSH)
    packed += (packer.compress(b" " * (1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)) * 1024
    send(packed, Content_Encoding="gzip")(handler)


def page_again(handler: BaseHTTPRequestHandler) -> None:
    """Answer with an empty page of a list whose next page is the same."""
    link = f'<http://{handler.headers["Host"]}{handler.path}>; rel="next"'
    send(b"[]", Link=link, Content_Type="application/json")(handler)


def tree(*entries: dict[str, object]) -> Answer:
    return send(json.dumps(entries).encode())


def entry(path: str, content: bytes, **fields: object) -> dict[str, object]:
    listed = {"type": "file", "path": path, "size": len(content), "oid": digest_of(path, content)}
    return {**listed, **fields}


@contextmanager
def hub(tree: Answer, info: Answer = INFO, file: Answer = FILE) -> Iterator[str]:
    answers = {"tree": staticmethod(tree), "info": staticmethod(info), "file": staticmethod(file)}
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), answers))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def refusal(monkeypatch: pytest.MonkeyPatch, address: str, cache: Path) -> str:
    """Return why a fetch is refused; it takes little memory and ends by itself."""
    monkeypatch.setenv("HF_ENDPOINT", address)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ProblemError) as caught, trio.fail_after(300):
        await fetch_model(Wish(NAME, pauses=(0.0,)), cache=cache)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 150_000, grown  # kilobytes on Linux
    assert caught.value.problem.status == 503
    detail = caught.value.problem.detail
    assert detail.isprintable()
    assert len(detail) < 700
    return detail


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(endless(b"[", b" " * 65536), "longer than 32 MB", id="endless"),
        pytest.param(bomb, "compressed", id="bomb"),
        pytest.param(send(b"[" * 100_000), "recursion", id="nested"),
        pytest.param(send(b'{"a": 1'), "could not be downloaded", id="cut"),
        pytest.param(send(b"[1, null]"), "could not be downloaded", id="senseless"),
    ],
)
@pytest.mark.parametrize("where", ["tree", *deep_only("info")])
async def test_lists_without_bounds_or_sense_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, answer: Answer, reason: str
) -> None:
    with hub(**{"tree": tree(), where: answer}) as address:
        assert reason in await refusal(monkeypatch, address, tmp_path)


async def test_a_list_whose_pages_do_not_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "LISTING_SECONDS", 1.0)
    with hub(page_again) as address:
        assert "does not end" in await refusal(monkeypatch, address, tmp_path)


@pytest.mark.parametrize("token", ["secret", None])
async def test_a_list_that_goes_on_at_another_server_is_refused_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    asked: list[str | None] = []

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.headers["Authorization"])
        send(b"[]", Content_Type="application/json")(handler)

    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    with hub(elsewhere) as other:

        def page_away(handler: BaseHTTPRequestHandler) -> None:
            link = f'<{other}{handler.path}>; rel="next"'
            send(b"[]", Link=link, Content_Type="application/json")(handler)

        with hub(page_away) as address:
            assert "another server, '127.0.0.1'" in await refusal(monkeypatch, address, tmp_path)
    assert asked == []


async def test_a_list_may_be_redirected_without_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    monkeypatch.setenv("HF_TOKEN", "secret")

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.headers["Authorization"])
        tree(entry("config.json", CONFIG))(handler)

    with hub(elsewhere) as other:

        def lead_away(handler: BaseHTTPRequestHandler) -> None:
            send(b"", 307, Location=f"{other}{handler.path}")(handler)

        with hub(lead_away) as address:
            assert "there are no weights" in await refusal(monkeypatch, address, tmp_path)
    assert asked == [None]


DEEP = [entry(f"{'/'.join(f'{n}' for _ in range(240))}/x", b"") for n in range(250)]


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        pytest.param([entry("config.json", CONFIG, oid="AB" * 20)], "an invalid hash", id="case"),
        pytest.param([entry("config.json", CONFIG, size=-1)], "without a size", id="negative"),
        pytest.param([entry("config.json", CONFIG, size=True)], "without a size", id="bool"),
        pytest.param([entry("config.json", CONFIG, size="1")], "without a size", id="text"),
        pytest.param([entry("a.safetensors", b"", lfs={"oid": 7})], "could not be downloaded", id="lfs"),
        pytest.param([entry(f"{n}", b"") for n in range(5_001)], "more than 5,000 files", id="many"),
        pytest.param(DEEP, "more than 5,000 folders", id="deep"),
        pytest.param([entry("\ud800.json", CONFIG)], "could not be downloaded", id="surrogate"),
        pytest.param([entry("\u20ac" * 200, CONFIG)], "could not be downloaded", id="long"),
    ],
)
async def test_listed_files_that_cannot_be_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: list[dict[str, object]], reason: str
) -> None:
    with hub(tree(*entries)) as address:
        assert reason in await refusal(monkeypatch, address, tmp_path)
    assert list((tmp_path / ".greenroom").glob("*")) == []


async def test_the_hubs_words_give_no_orders_to_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "\x1b]0;mine\x07\x1b[2J" + "very " * 10_000
    content = json.dumps({"error": words, "sha": words}).encode()
    for status in (200, 400, 401, 403, 404, 418, 451):
        with hub(tree(), send(content, status, X_Error_Message="no" * 2_000)) as address:
            await refusal(monkeypatch, address, tmp_path)
    files = tree(entry(f"model.safetensors{words[:900]}", b""))
    with hub(files) as address:
        assert "leaves its folder" in await refusal(monkeypatch, address, tmp_path)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(send(b"", 302, Location="file:///etc/passwd"), "not https or http", id="file"),
        pytest.param(send(b"", 302, Location="//"), "more than 5 times", id="circle"),
        pytest.param(send(b"", 302, Location="http://[::"), "invalid address", id="no address"),
        pytest.param(send(b"", 302), "status 302", id="nowhere"),
        pytest.param(endless(CONFIG, CONFIG), "longer than", id="endless"),
        pytest.param(send(CONFIG, Content_Encoding="gzip"), "encoded", id="encoded"),
        pytest.param(send(CONFIG, Content_Length="10"), "did not arrive", id="short"),
        pytest.param(send(CONFIG, Content_Length="-5"), "did not arrive", id="negative"),
        pytest.param(send(CONFIG, 206, Content_Range="bytes 5-9/10"), "another range", id="range"),
        pytest.param(send(CONFIG[::-1]), "does not have the hash", id="wrong"),
        pytest.param(send(CONFIG, X_Long="a" * 1_000_000), "did not arrive", id="headers"),
    ],
)
async def test_answers_that_are_not_the_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, reason: str
) -> None:
    with hub(tree(entry("config.json", CONFIG)), file=answer) as address:
        assert reason in await refusal(monkeypatch, address, tmp_path)


def trap(kind: str, place: Path, target: Path) -> None:
    """Put a trap in the place of a file."""
    place.parent.mkdir(parents=True)
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
        case "link":
            place.symlink_to(target)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
async def test_traps_in_the_cache_are_neither_read_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    treasure = tmp_path / "treasure"
    treasure.write_text("gold")
    blob = tmp_path / "hub" / "models--org--model" / "blobs" / digest_of("config.json", CONFIG)
    trap(kind, blob.with_name(f"{blob.name}.greenroom.part"), treasure)
    with hub(tree(entry("config.json", CONFIG))) as address:
        assert "could not be downloaded" in await refusal(monkeypatch, address, tmp_path / "hub")
    assert treasure.read_text() == "gold"


def test_a_search_shows_only_what_may_be_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SEARCH_SECONDS", 600.0)
    found = [{"id": "org/fine", "downloads": 3}, {"id": "\x1b[2J", "downloads": 2}]
    with hub(tree(), send(json.dumps(found).encode())) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        assert [each.id for each in search.search_hub("mlx", 10)] == ["org/fine"]
    with hub(tree(), endless(b"[", b" " * 65536)) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        with pytest.raises(ProblemError, match="longer than 32 MB"):
            search.search_hub("mlx", 10)

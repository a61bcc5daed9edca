"""Multipart forms: files are limited in size, stored on disk, and deleted with their request."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from quart import Response, request
from quart_trio import QuartTrio

from greenroom.http.guard import multipart_forms
from greenroom.http.guard.multipart_forms import FILES_AT_MOST, FormReader
from greenroom.http.transport.request_connection import (
    FlowControlledBody,
    FlowControlledRequest,
    RequestConnection,
)
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.hostile.uploads import BROKEN_FORMS, NAMES, Upload, form
from greenroom.tests.support.servers.http_servers import RawClient, RawResponse, connected, running, serving

MAX_BYTES = 4 * MEGABYTE


class Receiver:
    """An application that answers with the form that it received.

    Attributes:
        release: Event that answers wait for.
    """

    def __init__(self, body_timeout: float = 60.0) -> None:
        self.reader = FormReader(MAX_BYTES)
        self.release = trio.Event()
        self.release.set()
        self.paths: list[Path] = []
        self.app = QuartTrio(__name__)
        self.app.asgi_http_class = RequestConnection
        self.app.request_class = FlowControlledRequest
        self.app.config["BODY_TIMEOUT"] = body_timeout
        self.app.add_url_rule("/", view_func=self._receive, methods=["POST"])
        self.app.register_error_handler(ProblemError, self._refuse)

    async def _receive(self) -> Response:
        read = await self.reader.read(request, request.scope["state"]["resources"])
        await self.release.wait()
        if read.file is None:
            return Response(str(dict(read.fields)))
        path = read.file.path
        self.paths.append(path)
        mode = stat.S_IMODE(path.stat().st_mode)
        return Response(f"{dict(read.fields)} {path.read_bytes()[:5]!r} {path.stat().st_size} {mode:o}")

    async def _refuse(self, error: ProblemError) -> Response:
        return Response(f"{error.problem.code}: {error.problem.detail}", error.problem.status)


async def post(receiver: Receiver, upload: Upload) -> RawResponse:
    async with running(receiver.app, Settings()) as server, connected(server) as client:
        await send(client, upload)
        return await client.receive_response()


async def send(client: RawClient, upload: Upload) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in upload.headers.items())
    await client.send(f"POST / HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n".encode())
    for piece in upload.pieces():
        await client.send(piece)


async def wait_until_dropped(receiver: Receiver) -> None:
    with trio.fail_after(300):
        while receiver.reader.folder.held or any(path.exists() for path in receiver.paths):  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_a_file_is_its_users_alone_and_is_gone_with_its_request() -> None:
    receiver = Receiver()
    answer = await post(receiver, Upload({"model": "m"}, 3 * MEGABYTE, b"begin"))
    expected = f"{{'model': 'm'}} b'begin' {3 * MEGABYTE} 600"
    assert (answer.status, answer.body.decode()) == (200, expected)
    assert stat.S_IMODE(receiver.paths[0].parent.stat().st_mode) == 0o700
    await wait_until_dropped(receiver)


@pytest.mark.parametrize("name", NAMES)
async def test_what_a_client_calls_its_file_is_part_of_no_path(name: str) -> None:
    receiver = Receiver()
    answer = await post(receiver, form(b"hello", name, model="m"))
    assert answer.status in (200, 413)  # the name may exceed the limit of a part's head
    for path in receiver.paths:
        assert path.name.startswith(f"{os.getpid()}-")


async def post_whole(receiver: Receiver, kind: str) -> RawResponse:
    """Return the answer to a broken form; it may come before the form is completely sent."""
    content_type, body = BROKEN_FORMS[kind]
    async with running(receiver.app, Settings()) as server, connected(server) as client:
        head = f"host: x\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
        await client.send(f"POST / HTTP/1.1\r\n{head}\r\n".encode())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send_what_is_taken, client, body)
            answer = await client.receive_response()
            nursery.cancel_scope.cancel("answered")
            return answer


@pytest.mark.parametrize("kind", BROKEN_FORMS)
async def test_what_is_no_form_is_refused(kind: str) -> None:
    receiver = Receiver()
    answer = await post_whole(receiver, kind)
    assert answer.status in (400, 413, 415)
    await wait_until_dropped(receiver)


@pytest.mark.parametrize("kind", ["headers without end", "headers of 20 kB", "100 parts"])
async def test_a_form_that_is_too_large_is_called_so(kind: str) -> None:
    answer = await post_whole(Receiver(), kind)
    assert answer.status == 413
    assert answer.body.startswith(b"form_too_large:")


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("another boundary", "does not begin with the boundary"),
        ("another boundary, long", "does not begin with the boundary"),
        ("field in UTF-16", "`prompt` is not UTF-8"),
        ("name of a file in Latin-1", "head of a part is not UTF-8"),
        ("no end", "cut off"),
    ],
)
async def test_what_is_wrong_with_a_form_is_named(kind: str, named: str) -> None:
    answer = await post_whole(Receiver(), kind)
    assert answer.status == 400
    assert named in answer.body.decode()


async def _send_what_is_taken(client: RawClient, data: bytes) -> None:
    with suppress(trio.BrokenResourceError):
        await client.send(data)


async def test_a_file_over_the_limit_is_refused_at_once_or_when_it_is_passed() -> None:
    settings = Settings(max_upload_bytes=MEGABYTE, shutdown_timeout=60.0)
    upload = Upload({"model": "m"}, 1 << 30)
    async with serving(settings) as served:
        async with connected(served.server) as client:
            lines = "".join(f"{name}: {value}\r\n" for name, value in upload.headers.items())
            head = f"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n"
            await client.send(head.encode())  # send no body
            declared = await client.receive_response()
        async with connected(served.server) as client:
            lines = lines.replace(
                f"content-length: {upload.headers['content-length']}", "transfer-encoding: chunked"
            )
            await client.send(head.split("\r\n")[0].encode() + f"\r\nhost: localhost\r\n{lines}\r\n".encode())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_send_chunks, client, upload)
                passed = await client.receive_response()
                nursery.cancel_scope.cancel("answered")
    for answer in (declared, passed):
        assert (answer.status, answer.json()["error"]["code"]) == (413, "file_too_large")
        assert "1 MB" in answer.json()["error"]["message"]


async def _send_chunks(client: RawClient, upload: Upload, end: bytes = b"") -> None:
    with suppress(trio.BrokenResourceError):
        for piece in upload.pieces():
            await client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        await client.send(end)


async def test_what_belongs_to_no_field_counts_too() -> None:
    receiver, upload = Receiver(), Upload({}, 2 * MAX_BYTES, field="other")
    kind = upload.headers["content-type"]
    head = f"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
    async with running(receiver.app, Settings()) as server, connected(server) as client:
        await client.send(head.encode())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send_chunks, client, upload, b"0\r\n\r\n")
            answer = await client.receive_response()
            nursery.cancel_scope.cancel("answered")
    assert (answer.status, answer.body.split(b":")[0]) == (413, b"file_too_large")


async def test_files_of_all_requests_together_are_bounded() -> None:
    receiver = Receiver()
    receiver.release = trio.Event()
    async with running(receiver.app, Settings()) as server, trio.open_nursery() as nursery:
        for _ in range(FILES_AT_MOST):
            nursery.start_soon(_send_and_wait, server, Upload({}, MAX_BYTES - 4096))
        with trio.fail_after(300):
            while receiver.reader.folder.held < FILES_AT_MOST * (MAX_BYTES - 4096):  # noqa: ASYNC110
                await trio.sleep(0.01)
        async with connected(server) as client:
            with suppress(trio.BrokenResourceError):
                await send(client, Upload({}, MEGABYTE))
            refused = await client.receive_response()
        receiver.release.set()
    assert (refused.status, refused.body.split(b":")[0]) == (503, b"too_many_uploads")
    await wait_until_dropped(receiver)


async def _send_and_wait(server: object, upload: Upload) -> None:
    async with connected(server) as client:  # type: ignore[arg-type]
        await send(client, upload)
        assert (await client.receive_response()).status == 200


async def test_a_full_disk_is_told_before_and_while_a_file_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(multipart_forms, "FREE_BYTES", 1 << 62)
    announced = await post(Receiver(), form(b"hello"))
    monkeypatch.undo()

    def write_nothing(descriptor: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(multipart_forms, "_write_all", write_nothing)
    written = await post(Receiver(), form(b"hello"))
    for answer in (announced, written):
        assert (answer.status, answer.body.split(b":")[0]) == (507, b"insufficient_storage")


async def test_a_client_that_sends_nothing_more_is_given_up_and_its_file_too() -> None:
    receiver = Receiver(body_timeout=0.05)
    upload = Upload({}, MEGABYTE)
    async with running(receiver.app, Settings()) as server, connected(server) as client:
        lines = "".join(f"{name}: {value}\r\n" for name, value in upload.headers.items())
        await client.send(
            f"POST / HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n".encode() + upload.whole()[:900]
        )
        answer = await client.receive_response()
    assert answer.status == 408
    await wait_until_dropped(receiver)


async def test_a_client_that_leaves_takes_its_file_along() -> None:
    receiver = Receiver()
    async with running(receiver.app, Settings()) as server:
        async with connected(server) as client:
            await client.send(b"POST / HTTP/1.1\r\nhost: x\r\n" + _head(Upload({}, MAX_BYTES)))
            with trio.fail_after(300):
                while not receiver.reader.folder.held:  # noqa: ASYNC110
                    await trio.sleep(0.01)
        await wait_until_dropped(receiver)


def _head(upload: Upload) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in upload.headers.items())
    return f"{lines}\r\n".encode() + next(upload.pieces()) + bytes(1000)


async def test_no_more_of_a_body_is_in_memory_than_waits_to_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = Receiver()
    held: list[int] = []
    expect = FlowControlledBody.expect

    def expect_and_measure(body: FlowControlledBody, size: int) -> None:
        expect(body, size)
        held.append(body._held)

    monkeypatch.setattr(FlowControlledBody, "expect", expect_and_measure)
    answer = await post(receiver, Upload({}, MAX_BYTES - 4096))
    assert answer.status == 200
    assert 0 < max(held) < MEGABYTE


async def test_a_folder_that_the_system_has_cleaned_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    receiver = Receiver()
    for _ in range(2):
        assert (await post(receiver, Upload({}, 2 * MEGABYTE, b"begin"))).status == 200
        folder = receiver.paths[-1].parent
        assert folder == tmp_path / f"greenroom-uploads-{os.getuid()}"
        assert stat.S_IMODE(folder.lstat().st_mode) == 0o700
        await wait_until_dropped(receiver)
        folder.rmdir()

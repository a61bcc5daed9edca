"""Sockets of foreign, hostile, slow, silent or vanished clients."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import structlog
import trio
from wsproto.events import CloseConnection, Ping, TextMessage

from greenroom.http.answering.route_services import RouteServices
from greenroom.http.app import create_app_with
from greenroom.http.guard.request_body import RequestBodies
from greenroom.http.responses import socket_session
from greenroom.http.responses.incoming_messages import MAX_WAITING, IncomingMessages
from greenroom.http.responses.socket_session import ResponseSockets, SocketLimits
from greenroom.http.transport.web_socket import Part
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    eventually,
    status,
)
from greenroom.tests.support.clients.web_socket_clients import (
    PATH,
    RawSocket,
    handshake,
    open_socket,
    until_closed,
)
from greenroom.tests.support.servers.http_servers import RawResponse, Served, connected, running, serving

ASKED = "one"
LOCAL = {"type": "response.create", "model": "qwen3", "store": False, "input": ASKED, "max_output_tokens": 4}


async def refused(served: Served, **headers: str) -> RawResponse:
    async with connected(served.server) as client:
        await client.request("GET", PATH, b"", **handshake(**headers))
        return await client.receive_response()


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"origin": "https://evil.example"}, "origin_not_allowed"),
        ({"origin": "null"}, "origin_not_allowed"),
        ({"sec_fetch_site": "cross-site"}, "origin_not_allowed"),
        ({"host": "evil.example"}, "host_not_allowed"),
    ],
)
async def test_pages_of_other_sites_open_no_socket(
    server_without_model: Served, headers: dict[str, str], code: str
) -> None:
    answer = await refused(server_without_model, **headers)
    assert (answer.status, answer.json()["error"]["code"]) == (403, code)
    await until_closed(server_without_model)


async def test_pages_of_allowed_sites_do(server_without_model: Served) -> None:
    async with open_socket(server_without_model, origin="https://chat.example", host="greenroom.example"):
        pass


@pytest.mark.parametrize("scarce", ["connections", "descriptors"])
async def test_sockets_leave_connections_to_everybody_else(
    scarce: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(max_connections=8, shutdown_timeout=60.0)
    if scarce == "descriptors":  # enough for 10 connections
        settings = attrs.evolve(settings, max_connections=1000)
        monkeypatch.setattr(resource, "getrlimit", lambda _: (17 + len(os.listdir("/dev/fd")), 1_000_000))
    async with serving(settings) as served:
        async with open_socket(served), open_socket(served):
            answer = await refused(served)
            assert (answer.status, answer.json()["error"]["code"]) == (503, "too_many_connections")
        await until_closed(served)
        async with open_socket(served):
            pass


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_websocket_version": "8"},
        {"sec_websocket_key": "short"},
        {"upgrade": "h2c"},
        {"connection": "keep-alive"},
        {"content_length": "0"},
    ],
)
async def test_what_is_no_handshake_is_a_plain_request(
    server_without_model: Served, headers: dict[str, str]
) -> None:
    answer = await refused(server_without_model, **headers)
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) == {"OPTIONS", "POST"}


async def test_no_extension_is_taken(server_without_model: Served) -> None:
    async with connected(server_without_model.server) as client:
        await client.request("GET", PATH, b"", **handshake(sec_websocket_extensions="permessage-deflate"))
        head = await client.read_until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"sec-websocket-extensions" not in head.lower()
        assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '"text"', "nonsense", "\x00", "[" * 10_000])
async def test_what_is_no_message_is_named_and_the_socket_goes_on(
    server_without_model: Served, text: str
) -> None:
    async with open_socket(server_without_model) as socket:
        for _ in range(2):
            [event] = await socket.answer(text)
            assert event["status"] in (400, 413)


async def test_a_header_of_another_protocol_leaves_errors_as_they_are(server_without_model: Served) -> None:
    async with open_socket(server_without_model, anthropic_version="2023-06-01") as socket:
        for _ in range(2):
            [event] = await socket.answer("{")
            assert (event["status"], event["error"]["code"]) == (400, "invalid_json")


async def test_a_message_may_come_in_pieces(server_without_model: Served) -> None:
    text = json.dumps({**LOCAL, "type": "réponse"})
    async with open_socket(server_without_model) as socket:
        for letter in text[:-1]:
            await socket.send_event(TextMessage(letter, message_finished=False))
            await socket.send_event(Ping(b"between"))
        await socket.send_event(TextMessage(text[-1]))
        [event] = await socket.rest()
        assert event["error"]["param"] == "type"
        assert socket.pongs == [b"between"] * (len(text) - 1)


async def closed_with(socket: RawSocket) -> tuple[int, list[str]]:
    """Return the close frame's code, and the error codes before it."""
    errors = []
    while (event := await socket.receive()) is not None:
        errors.append(event["error"]["code"])
    assert socket.closed is not None
    return int(socket.closed.code), errors


async def test_a_binary_message_closes_the_socket(server_without_model: Served) -> None:
    async with open_socket(server_without_model) as socket:
        await socket.send_binary(b"{}")
        assert await closed_with(socket) == (1003, ["invalid_json"])
    await until_closed(server_without_model)


async def test_a_message_that_is_too_large_closes_the_socket(server_without_model: Served) -> None:
    async with open_socket(server_without_model) as socket:
        # The announced length alone is accepted. The size received counts.
        await socket.client.send(b"\x81\xff" + (2**62).to_bytes(8) + b"\0\0\0\0")
        for _ in range(2 * 16 + 1):
            await socket.client.send(b"x" * (MEGABYTE // 16))
        assert await closed_with(socket) == (1009, ["body_too_large"])
    await until_closed(server_without_model)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x02{}", 1002),  # not masked
        (b"\xf1\x80\0\0\0\0", 1002),  # reserved bits
        (b"\x80\x80\0\0\0\0", 1002),  # continuation without a start
        (b"\x81\x81\0\0\0\0\xff", 1007),  # invalid UTF-8
        (b"\x01\x80\0\0\0\0" + b"\x00\x80\0\0\0\0" * 5_000, 1008),  # a message of empty frames
        (b"\x01\x81\0\0\0\0{" + b"\x00\x81\0\0\0\0a" * 50_000, 1008),  # a byte in each frame
        (b"\x89\x80\0\0\0\0" * 5_000, 1008),  # pings
    ],
)
async def test_malformed_frames_and_floods_close_the_socket(
    server_without_model: Served, frame: bytes, code: int
) -> None:
    async with open_socket(server_without_model) as socket:
        await socket.client.send(frame)
        assert await closed_with(socket) == (code, [])
    await until_closed(server_without_model)


async def test_a_client_that_closes_is_answered(server_without_model: Served) -> None:
    async with open_socket(server_without_model) as socket:
        await socket.send_event(CloseConnection(1000, "enough"))
        assert await closed_with(socket) == (1000, [])
    await until_closed(server_without_model)


@asynccontextmanager
async def hanging(settings: Settings, tokens: int = 1000) -> AsyncIterator[tuple[Served, RawSocket, Faults]]:
    """Yield a socket whose answer hangs after its first tokens."""
    faults = Faults(hang={ASKED})
    async with serving(settings, engines=FaultyEngines(settings, faults)) as served:
        try:
            async with open_socket(served) as socket:
                await socket.send({**LOCAL, "max_output_tokens": tokens, "ignore_eos": True})
                while not faults.hangs.is_set():  # noqa: ASYNC110
                    await trio.sleep(0.001)
                yield served, socket, faults
        finally:
            faults.release.set()


@pytest.mark.parametrize("how", ["hang up", pytest.param("close", marks=pytest.mark.deep)])
async def test_whoever_leaves_ends_the_generation(settings: Settings, how: str) -> None:
    with structlog.testing.capture_logs() as logs:
        async with hanging(settings) as (served, socket, faults):
            if how == "close":
                await socket.send_event(CloseConnection(1000))
            else:
                await socket.client.stream.aclose()
            await until_closed(served)
            faults.release.set()

            async def idle() -> bool:
                now = await status(served.system.pool, "qwen3")
                return now.running == now.waiting == 0

            await eventually(idle)
    assert [line["reason"] for line in logs if line["event"] == "request finished"] == ["cancelled"]


async def test_two_messages_are_answered_one_after_the_other(settings: Settings) -> None:
    async with serving(settings) as served, open_socket(served) as socket:
        for number in range(3):
            await socket.send({**LOCAL, "stream_id": str(number)})
        lanes = [event["stream_id"] for _ in range(3) for event in await socket.rest()]
        assert lanes == sorted(lanes)
        assert set(lanes) == {"0", "1", "2"}


async def test_only_so_many_messages_wait(settings: Settings) -> None:
    async with hanging(settings) as (_, socket, _):
        for _ in range(MAX_WAITING + 1):
            await socket.send({**LOCAL, "max_output_tokens": 1})
        while (event := await socket.receive()) is not None and event["type"] != "error":
            pass
        assert event is not None
        assert (event["status"], event["error"]["code"]) == (429, "too_many_messages")


async def test_waiting_messages_count_as_bodies() -> None:
    bodies = RequestBodies(MEGABYTE)
    first, second = (IncomingMessages(bodies.largest, bodies.account) for _ in range(2))
    for messages in (first, second):
        for _ in range(MAX_WAITING):
            assert messages.add(Part(b"x" * 900_000, is_text=True, ends=True)) is None
    found = [(await second.next()).problem for _ in range(MAX_WAITING)]
    assert found[0] is None
    assert found[-1] is not None
    assert found[-1].code == "too_many_bodies"
    assert first.close() == MAX_WAITING
    second.add(Part(b"x" * 900_000, is_text=True, ends=True))
    assert (await second.next()).problem is None


async def test_a_drain_closes_idle_sockets_and_lets_answers_end(settings: Settings) -> None:
    settings = attrs.evolve(settings, db=":memory:", shutdown_timeout=3600.0)
    async with hanging(settings, tokens=8) as (served, busy, faults), open_socket(served) as idle:
        await busy.send(LOCAL)
        served.server.drain.set()
        assert await closed_with(idle) == (1001, [])
        faults.release.set()
        assert (await busy.rest())[-1]["type"] == "response.incomplete"
        assert await closed_with(busy) == (1001, ["draining"])
        await served.server.stopped.wait()
        assert served.system.refs.audit is not None
        rows, _ = served.system.refs.audit.book.after(0)
        assert ("refused", "draining") in [(row.ending, row.error) for row in rows]


@pytest.mark.parametrize(
    ("limits", "sent", "expected"),
    [
        (SocketLimits(idle=0.05), b"", (1000, [])),
        (SocketLimits(age=0.05), b"", (1000, ["websocket_connection_limit_reached"])),
        (SocketLimits(message=0.05), b"\x01\x81\0\0\0\0{", (1008, ["request_timeout"])),
    ],
    ids=["idle", "old", "slow message"],
)
async def test_sockets_end_in_time(
    settings: Settings, limits: SocketLimits, sent: bytes, expected: tuple[int, list[str]]
) -> None:
    async with serving(settings) as served:
        services = RouteServices(served.system.refs, settings)
        app = create_app_with(services)
        sockets = {PATH: ResponseSockets(app, services, limits)}
        async with running(app, settings, sockets=sockets) as server:
            own = Served(server, served.system)
            async with open_socket(own) as socket:
                await socket.client.send(sent)
                assert await closed_with(socket) == expected
            await until_closed(own)


async def test_a_reader_that_takes_nothing_loses_its_socket(settings: Settings) -> None:
    async with serving(settings, send_timeout=0.2) as served, open_socket(served) as socket:
        tools = [{"type": "function", "name": "look"}, {"type": "web_search", "note": "x" * 900_000}]
        echoed = {**LOCAL, "tools": tools, "generate": False}
        with suppress(trio.BrokenResourceError):  # it may be lost before all is sent
            for _ in range(4):
                await socket.send(echoed)
        await until_closed(served)


async def test_large_answers_that_nobody_reads_leave_no_memory_for_others(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_session, "UNSENT_BYTES", MEGABYTE)
    tools = [{"type": "function", "name": "look"}, {"type": "web_search", "note": "x" * 900_000}]
    echoed = {**LOCAL, "tools": tools, "generate": False}
    settings = attrs.evolve(settings, db=":memory:")
    async with serving(settings, send_timeout=600.0) as served, open_socket(served) as socket:

        async def code() -> str | None:
            last = (await socket.answer(json.dumps(echoed)))[-1]
            return last["error"]["code"] if last["type"] == "error" else None

        assert await code() is None  # alone, it may be larger than the account
        async with open_socket(served) as silent:
            for _ in range(8):
                await silent.send(echoed)

            async def refuses() -> bool:
                return await code() == "too_many_answers"

            await eventually(refuses)
            audit = served.system.refs.audit

            async def recorded() -> bool:
                rows = () if audit is None else audit.book.after(0)[0]
                return ("failed", "too_many_answers") in [(row.ending, row.error) for row in rows]

            await eventually(recorded)
            assert (await socket.answer(json.dumps({**LOCAL, "generate": False})))[-1]["type"] != "error"

        async def answers() -> bool:
            return await code() is None

        await eventually(answers)


async def test_sockets_count_as_connections(settings: Settings) -> None:
    settings = attrs.evolve(settings, max_connections=1)
    async with serving(settings) as served, open_socket(served):
        answer = await refused(served)
        assert (answer.status, answer.json()["error"]["code"]) == (503, "too_many_connections")

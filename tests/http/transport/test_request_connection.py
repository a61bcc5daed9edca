"""Fair reading of request bodies that arrive concurrently."""

from __future__ import annotations

from typing import Any, cast

import pytest
import structlog.testing
import trio
from hypercorn.typing import ASGIReceiveEvent, ASGISendEvent, HTTPScope
from quart import request
from quart_trio import QuartTrio
from werkzeug.datastructures import Headers

from greenroom.http.transport.request_connection import TURN_BYTES, ClientIds, RequestConnection, client_ids
from greenroom.schemas.messages.requests import TraceContext
from greenroom.tests.support.engines.watched_engines import until
from greenroom.tests.support.servers.http_servers import Served, fetch

UPLOADS = 10
PARTS = 5


class Rounds(trio.abc.Instrument):
    """An instrument that counts the iterations of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


async def upload(app: QuartTrio, name: str, size: int) -> None:
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": f"/{name}",
        "query_string": b"",
        "scheme": "http",
        "headers": [(b"host", b"localhost")],
        "http_version": "1.1",
        "root_path": "",
        "extensions": {},
        "state": {},
    }
    parts = [b"x" * size] * PARTS + [b""]

    async def receive() -> ASGIReceiveEvent:
        await trio.lowlevel.checkpoint()
        if not parts:
            await trio.sleep_forever()
        body = parts.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(parts)}

    async def send(_: ASGISendEvent) -> None:
        await trio.lowlevel.checkpoint()

    await RequestConnection(app, cast("HTTPScope", scope))(receive, send)


async def rounds_of_parts(size: int) -> dict[str, list[int]]:
    """Return the event loop iterations in which each body's parts reached their routes."""
    app, rounds = QuartTrio(__name__), Rounds()
    reached: dict[str, list[int]] = {}

    @app.post("/<name>")
    async def read(name: str) -> str:
        async for part in request.body:
            if part:  # Quart 0.23 marks the end by an empty part
                reached.setdefault(name, []).append(rounds.count)
        return ""

    trio.lowlevel.add_instrument(rounds)
    async with trio.open_nursery() as nursery:
        for i in range(UPLOADS):
            nursery.start_soon(upload, app, str(i), size)
    trio.lowlevel.remove_instrument(rounds)
    return reached


async def test_one_large_body_goes_on_in_a_round_of_the_event_loop_and_each_in_its_turn() -> None:
    reached = await rounds_of_parts(TURN_BYTES)
    assert [len(parts) for parts in reached.values()] == [PARTS] * UPLOADS
    every = sorted(moment for parts in reached.values() for moment in parts)
    assert len(set(every)) == len(every)
    lasts = [parts[-1] for parts in reached.values()]
    assert min(lasts) > max(parts[0] for parts in reached.values())


async def test_small_bodies_wait_for_no_turn() -> None:
    reached = await rounds_of_parts(10)
    every = [moment for parts in reached.values() for moment in parts]
    assert len(set(every)) < len(every) / 2


TRACE = "0af7651916cd43dd8448eb211c80319c"
PLACE = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.mark.parametrize("ident", ["a", "job 7/x=1", "~" * 128])
def test_a_clients_own_id_is_kept(ident: str) -> None:
    assert client_ids(Headers({"X-Request-Id": ident})) == ClientIds(ident)
    both = Headers({"X-Request-Id": "proxy", "X-Client-Request-Id": ident})
    assert client_ids(both) == ClientIds(ident)


@pytest.mark.parametrize("ident", ["", "a" * 129, "a\tb", "\u00e9", "\x7f"])
def test_an_id_that_no_log_should_carry_is_ignored(ident: str) -> None:
    assert client_ids(Headers({"X-Request-Id": ident})) == ClientIds()
    assert client_ids(Headers({"X-Client-Request-Id": ident, "X-Request-Id": "b"})) == ClientIds("b")


@pytest.mark.parametrize(
    ("place", "known"),
    [
        (PLACE, True),
        (f"01-{TRACE}-b7ad6b7169203331-01-more", True),
        (f"{PLACE}-more", False),
        (PLACE.upper(), False),
        (f"ff-{TRACE}-b7ad6b7169203331-01", False),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE}-b7ad6b7169203331", False),
        ("", False),
    ],
)
def test_only_valid_traces_are_followed(place: str, known: bool) -> None:
    ids = client_ids(Headers({"traceparent": place}))
    assert ids == ClientIds(None, TraceContext(place) if known else None)
    assert ids.log_fields == ({"trace_id": TRACE} if known else {})


@pytest.mark.parametrize(
    ("states", "known"),
    [
        (["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"], "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        (["1a@vendor=a b", " b=2 "], "1a@vendor=a b, b=2 "),
        (["a=1,,b=2"], "a=1,,b=2"),
        (["a=1,b"], ""),
        (["A=1"], ""),
        (["a=1=2"], ""),
        (["a=\u00e9"], ""),
        ([f"a={'x' * 255},b={'x' * 255}"], ""),
        ([], ""),
    ],
)
def test_only_a_valid_state_of_a_trace_is_handed_on(states: list[str], known: str) -> None:
    headers = Headers([("traceparent", PLACE), *(("tracestate", state) for state in states)])
    assert client_ids(headers) == ClientIds(None, TraceContext(PLACE, known))
    assert client_ids(Headers(headers[1:])) == ClientIds()


async def test_ids_of_clients_are_logged_and_returned_beside_ours(server_without_model: Served) -> None:
    with structlog.testing.capture_logs() as lines:
        answer = await fetch(
            server_without_model.server, "GET", "/v1/models", x_request_id="job-7", traceparent=PLACE
        )
        await until(lambda: any(line["event"] == "request answered" for line in lines))
    [line] = [line for line in lines if line["event"] == "request answered"]
    assert (line["client_request_id"], line["trace_id"]) == ("job-7", TRACE)
    assert line["request_id"] == answer.headers["x-request-id"] != "job-7"
    assert answer.headers["x-client-request-id"] == "job-7"
    assert answer.headers["traceparent"] == PLACE

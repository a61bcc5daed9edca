"""Ids that clients give their own requests."""

from __future__ import annotations

import pytest
import structlog.testing
from werkzeug.datastructures import Headers

from greenroom.http.transport.request_connection import ClientIds, client_ids
from greenroom.tests.support.servers.http_servers import Served, fetch

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
    assert ids == ClientIds(None, place if known else None)
    assert ids.log_fields == ({"trace_id": TRACE} if known else {})


async def test_ids_of_clients_are_logged_and_returned_beside_ours(server_without_model: Served) -> None:
    with structlog.testing.capture_logs() as lines:
        answer = await fetch(
            server_without_model.server, "GET", "/v1/models", x_request_id="job-7", traceparent=PLACE
        )
    [line] = [line for line in lines if line["event"] == "request answered"]
    assert (line["client_request_id"], line["trace_id"]) == ("job-7", TRACE)
    assert line["request_id"] == answer.headers["x-request-id"] != "job-7"
    assert answer.headers["x-client-request-id"] == "job-7"
    assert answer.headers["traceparent"] == PLACE

"""Hostile paths and queries of stored responses are answered without a server error."""

from __future__ import annotations

from itertools import product

import trio

from greenroom.tests.support.servers.http_servers import Served, fetch

IDS = (
    "resp_1",
    "..",
    "%00",
    "%ff%fe",
    "%F0%9F%8C%8A",
    "resp_%2F..%2F1",
    "x" * 4_000,
    "'%20OR%201=1--",
    "%25s",
    "input_items",
)
QUERIES = (
    "",
    "?stream=true",
    "?stream=true&starting_after=0",
    "?stream=true&stream=false&starting_after=-0",
    "?include[]=%00&include=",
    "?limit=1e3&after=%ff&order=%00",
    "?after=" + "x" * 2_000,
    "?" + "&".join(f"include={number}" for number in range(200)),
)
ROUTES = (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items"))


async def statuses(served: Served, requests: list[tuple[str, str]]) -> dict[str, int]:
    """Return the statuses of concurrent requests."""
    answered: dict[str, int] = {}
    at_once = trio.CapacityLimiter(32)  # within any limit of open files

    async def one(method: str, path: str) -> None:
        async with at_once:
            answered[f"{method} {path}"] = (await fetch(served.server, method, path)).status

    with trio.fail_after(300):
        async with trio.open_nursery() as nursery:
            for method, path in requests:
                nursery.start_soon(one, method, path)
    return answered


async def test_nothing_in_a_path_or_a_query_is_a_fault_of_ours(server_without_model: Served) -> None:
    requests = [
        (method, f"/v1/responses/{ident}{tail}{query}")
        for (method, tail), ident, query in product(ROUTES, IDS, QUERIES)
    ]
    answered = await statuses(server_without_model, requests)
    assert len(answered) == len(ROUTES) * len(IDS) * len(QUERIES)
    assert set(answered.values()) <= {400, 404, 405}, {
        r: s for r, s in answered.items() if s not in (400, 404)
    }

"""The guard of full garbage collections, which are put off while requests hold many objects."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest
import trio
from quart import request
from quart_trio import QuartTrio

from greenroom.http.guard import json_counter
from greenroom.http.guard.json_counter import GcGuard
from greenroom.http.guard.request_body import RequestBodies
from greenroom.http.transport.request_connection import RequestConnection
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import fetch, running


@contextmanager
def counted_collections() -> Iterator[list[int]]:
    """Yield a list of full collections, each given by the number of collected objects."""
    seen: list[int] = []

    def tell(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            seen.append(info["collected"])

    gc.collect()
    gc.callbacks.append(tell)
    try:
        yield seen
    finally:
        gc.callbacks.remove(tell)


def make_objects() -> list[list[int]]:
    """Return enough objects to trigger a full collection, unless it is put off.

    A full collection waits for a number of younger ones, and for new objects worth a quarter of the old ones.
    """
    younger = math.prod(threshold + 1 for threshold in json_counter.USUAL)
    return [[] for _ in range(len(gc.get_objects()) + 2 * younger)]


def test_full_collections_are_put_off_while_much_is_held() -> None:
    collections = GcGuard()
    with counted_collections() as seen:
        collections.hold(json_counter.MAX_OBJECTS)
        make_objects()
        assert seen
        seen.clear()
        collections.hold(1)
        make_objects()
        assert not seen
        collections.release(1)
        make_objects()
        assert seen
        collections.release(json_counter.MAX_OBJECTS)


def test_they_are_not_put_off_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_counter, "MAX_REQUESTS", 5)
    collections = GcGuard()
    collections.hold(json_counter.MAX_OBJECTS + 1)
    with counted_collections() as seen:
        for _ in range(12):
            collections.hold(1)
            collections.release(1)
        assert len(seen) == 2
    collections.release(json_counter.MAX_OBJECTS + 1)


async def test_bodies_full_of_objects_are_decoded_without_a_full_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_counter, "MAX_HELD", 1_000_000)
    app, bodies = QuartTrio(__name__), RequestBodies(8 * MEGABYTE)
    app.asgi_http_class = RequestConnection
    app.config["MAX_CONTENT_LENGTH"] = 8 * MEGABYTE
    arrived, requests, go_on = count(1), 20, trio.Event()
    usual = gc.get_threshold()

    @app.post("/")
    async def size() -> str:
        resources = request.scope["state"]["resources"]
        body = await bodies.parse(request, resources, lambda body: body)
        if next(arrived) == requests:
            go_on.set()
        await go_on.wait()
        return str(len(body))

    async with running(app, Settings()) as server:
        data: list[list[dict[str, int]]] = [[{}] for _ in range(20_000)]
        with counted_collections() as seen:
            # The first request may trigger a collection, since it alone does not hold many objects.
            async with trio.open_nursery() as nursery:
                for _ in range(requests):
                    nursery.start_soon(fetch, server, "POST", "/", data)
            assert len(seen) <= 1
        while gc.get_threshold() != usual:
            await trio.lowlevel.checkpoint()

"""Counting a body's JSON values while it arrives."""

from __future__ import annotations

import gc
import itertools
import json
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from quart import request
from quart_trio import QuartTrio

from greenroom.http.guard import json_counter
from greenroom.http.guard.json_counter import (
    MAX_HELD,
    MAX_WAIT,
    UNCOUNTED,
    DecodedObjectBudget,
    GcGuard,
    JsonCounter,
)
from greenroom.http.guard.request_body import RequestBodies
from greenroom.http.transport.request_connection import RequestConnection
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import fetch, running

JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='\\"[]{},:a\n\u00e9\U0001f600\ud800'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='\\":,a'), inner),
    max_leaves=20,
)


def counted(data: bytes, cuts: list[int] | None = None) -> JsonCounter:
    counter = JsonCounter()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    for start, end in itertools.pairwise(edges):
        counter.feed(data[start:end])
    return counter


def contents(value: Any) -> tuple[int, int, int]:
    """Return the numbers of containers, members and commas in a value's JSON."""
    if not isinstance(value, list | dict):
        return 0, 0, 0
    children = [contents(child) for child in (value.values() if isinstance(value, dict) else value)]
    containers, members, commas = (sum(column) for column in zip((0, 0, 0), *children, strict=True))
    own = len(value) if isinstance(value, dict) else 0
    return containers + 1, members + own, commas + max(0, len(value) - 1)


@settings(max_examples=25)
@given(JSON, st.booleans(), st.lists(st.integers(0, 10_000), max_size=4))
def test_the_counts_are_those_of_the_decoded_value_wherever_the_body_is_cut(
    value: Any, ascii_only: bool, cuts: list[int]
) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    counter = counted(data, cuts)
    assert counter.size == len(data)
    assert (counter.containers, counter.members, counter.values) == contents(value)
    escaped = ascii_only and any(ord(unit) >= 0xD800 for unit in json.dumps(value, ensure_ascii=False))
    assert counter.has_surrogates or not escaped


@pytest.mark.parametrize(
    ("limit", "data", "named"),
    [
        ("MAX_DEPTH", lambda n: b"[" * n + b"]" * n, "levels deep"),
        ("MAX_CONTAINERS", lambda n: b"[" + b"[]," * (n - 2) + b"[]]", "arrays and objects"),
        ("MAX_MEMBERS", lambda n: b"{" + b'"a":1,' * n + b"}", "members"),
        ("MAX_STRINGS", lambda n: b"[" + b'"",' * (n - 1) + b'""]', "strings"),
        ("MAX_VALUES", lambda n: b"[" + b"1," * n + b"1]", "values"),
        ("MAX_ESCAPES", lambda n: b'"' + b"\\n" * n + b'"', "escaped characters"),
        ("MAX_WIDE_BYTES", lambda n: b'"' + "\U0001f600".encode() + b"a" * (n - 4) + b'"', "U+FFFF"),
        ("MAX_WIDE_BYTES", lambda n: b'"' + b"a" * (n - 12) + rb'\ud83d\ude00"', "U+FFFF"),
        (
            "MAX_WIDE_BYTES",
            lambda n: (
                b"["
                + (b'"' + b"a" * 65_532 + b'\xf0\x9f\x98\x80",') * (n // 65_536 - 1)
                + b'"\xf0'
                + b"a" * (65_535 + n % 65_536)
                + b'"]'
            ),
            "U+FFFF",
        ),
    ],
)
def test_too_much_is_refused_before_it_is_decoded(limit: str, data: Any, named: str) -> None:
    most = getattr(json_counter, limit)
    counted(data(most))
    with pytest.raises(ProblemError) as refused:
        counted(data(most + 1))
    assert refused.value.problem.status == 413
    assert named in refused.value.problem.detail
    assert str(most) in refused.value.problem.detail or limit == "MAX_WIDE_BYTES"


def test_what_stands_in_strings_is_no_structure() -> None:
    text = json.dumps({"csv": '1,2,[{:\\"' * 300_000}).encode()
    counter = counted(text)
    assert (counter.containers, counter.members, counter.values) == (1, 1, 0)


def test_large_strings_may_stand_beside_one_with_an_emoji() -> None:
    letters = b'"' + "\u4e2d".encode() * (4 << 20) + b'"'
    images = b'"' + b"iVBORw0KGgo=" * (2 << 20) + b'"'
    counted(b"[" + b",".join([images, '"\U0001f600"'.encode(), letters, rb'"\ud83d\ude00"', images]) + b"]")


@pytest.mark.parametrize(
    ("data", "is_long"),
    [
        (b"[" + b"9" * 309 + b",1]", False),
        (b"[" + b"9" * 310 + b"]", True),
        (b"1" * 65_300 + b",", True),
        (b" " * 65_400 + b"1" * 310, True),
        (b'["' + b"1" * 1000 + b'"]', False),
        (b"[" + b"123456789," * 10_000 + b"1]", False),
    ],
)
def test_numbers_of_too_many_digits_are_noted_wherever_the_body_is_cut(data: bytes, is_long: bool) -> None:
    assert counted(data).has_long_numbers == is_long
    assert counted(data, [len(data) - 155]).has_long_numbers == is_long


HALF = MAX_HELD // 2
THIRD = MAX_HELD // 3


class Requests:
    """Requests that hold objects until they end; their names begin with their client's, a letter."""

    def __init__(self) -> None:
        self.decoded = DecodedObjectBudget()
        self.admitted: list[str] = []
        self.refused: list[int] = []

    async def hold(self, name: str, objects: int, resources: ExitStack, *, translated: bool = False) -> None:
        try:
            done = await self.decoded.hold(name[0], objects, resources)
        except ProblemError as refusal:
            self.refused.append(refusal.problem.status)
        else:
            self.admitted.append(name)
            if translated:
                done()


async def test_what_fits_passes_what_does_not_until_that_has_aged(
    autojump_clock: trio.testing.MockClock,
) -> None:
    requests = Requests()
    first, second, rest = ExitStack(), ExitStack(), ExitStack()
    await requests.hold("a1", THIRD, first)
    await requests.hold("b1", THIRD, second)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(requests.hold, "c1", 2 * THIRD, rest)
        await trio.testing.wait_all_tasks_blocked()
        await requests.hold("d1", THIRD // 2, rest)
        await trio.sleep(6)
        nursery.start_soon(requests.hold, "e1", THIRD // 2, rest)
        nursery.start_soon(requests.hold, "f1", UNCOUNTED, rest)
        await trio.testing.wait_all_tasks_blocked()
        assert requests.admitted == ["a1", "b1", "d1", "f1"]
        first.close()
        await trio.testing.wait_all_tasks_blocked()
        assert requests.admitted[-1] == "f1"
        second.close()
        await trio.testing.wait_all_tasks_blocked()
        assert set(requests.admitted[4:]) == {"c1", "e1"}


async def test_one_client_leaves_room_for_others_and_gets_no_more_meanwhile(
    mock_clock: trio.testing.MockClock,  # on which no request ages
) -> None:
    requests = Requests()
    with ExitStack() as held:
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(requests.hold, f"a{number}", 95_000, held)
                await trio.testing.wait_all_tasks_blocked()
            assert requests.admitted == ["a0"]
            await requests.hold("b1", 6_000, held)
            await requests.hold("b2", 20_000, held)
            assert requests.admitted == ["a0", "b1", "b2"]
            nursery.cancel_scope.cancel()


async def test_most_of_a_charge_ends_with_the_translation_and_the_rest_with_the_request(
    mock_clock: trio.testing.MockClock,
) -> None:
    requests = Requests()
    with ExitStack() as held:
        for number in range(4):
            await requests.hold(f"a{number}", HALF, held, translated=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(requests.hold, "a5", HALF, held)
            await trio.testing.wait_all_tasks_blocked()
            assert len(requests.admitted) == 4
            await requests.hold("b1", HALF, held)
            held.pop_all().close()
        assert requests.admitted[-2:] == ["b1", "a5"]


async def test_who_leaves_makes_room_for_the_next(autojump_clock: trio.testing.MockClock) -> None:
    requests = Requests()
    with ExitStack() as held:
        await requests.hold("a", HALF, held)
        async with trio.open_nursery() as nursery:
            leaver = trio.CancelScope()

            async def leave() -> None:
                with leaver, ExitStack() as resources:
                    await requests.hold("leaver", MAX_HELD, resources)

            nursery.start_soon(leave)
            await trio.sleep(6)
            nursery.start_soon(requests.hold, "next", HALF, held)
            await trio.testing.wait_all_tasks_blocked()
            assert requests.admitted == ["a"]
            leaver.cancel()
        assert requests.admitted == ["a", "next"]


async def test_what_is_larger_than_all_room_is_decoded_alone() -> None:
    requests = Requests()
    with ExitStack() as resources:
        await requests.hold("huge", 2 * MAX_HELD, resources)
    await requests.hold("next", MAX_HELD, ExitStack())
    assert requests.admitted == ["huge", "next"]


async def test_waiting_ends_with_a_503(autojump_clock: trio.testing.MockClock) -> None:
    requests = Requests()
    with ExitStack() as resources:
        await requests.hold("held", MAX_HELD, resources)
        started = trio.current_time()
        await requests.hold("late", HALF, ExitStack())
        assert trio.current_time() - started == pytest.approx(MAX_WAIT)
    assert requests.refused == [503]
    await requests.hold("next", MAX_HELD, ExitStack())
    assert requests.admitted == ["held", "next"]


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

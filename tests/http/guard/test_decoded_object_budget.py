"""The object budget: bodies wait to be decoded while current requests hold many objects."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import trio
import trio.testing

from greenroom.http.guard.decoded_object_budget import MAX_HELD, MAX_WAIT, UNCOUNTED, DecodedObjectBudget
from greenroom.schemas.problems import ProblemError

HALF = MAX_HELD // 2


class Requests:
    """Requests that hold objects until they are ended."""

    def __init__(self) -> None:
        self.decoded = DecodedObjectBudget()
        self.admitted: list[str] = []
        self.refused: list[int] = []

    async def hold(self, name: str, objects: int, resources: ExitStack) -> None:
        try:
            await self.decoded.hold(objects, resources)
        except ProblemError as refusal:
            self.refused.append(refusal.problem.status)
        else:
            self.admitted.append(name)


async def test_bodies_are_admitted_in_their_order_as_room_is_given_back() -> None:
    requests = Requests()
    first, second, third, fourth = (ExitStack() for _ in range(4))
    async with trio.open_nursery() as nursery:
        for name, resources, objects in (
            ("first", first, HALF),
            ("second", second, HALF),
            ("third", third, MAX_HELD),
            ("fourth", fourth, HALF),
        ):
            nursery.start_soon(requests.hold, name, objects, resources)
            await trio.testing.wait_all_tasks_blocked()
        assert requests.admitted == ["first", "second"]
        await requests.hold("small", UNCOUNTED, ExitStack())
        assert requests.admitted[-1] == "small"
        first.close()
        await trio.testing.wait_all_tasks_blocked()
        assert "third" not in requests.admitted
        second.close()
        await trio.testing.wait_all_tasks_blocked()
        assert requests.admitted[-1] == "third"
        third.close()
    assert requests.admitted[-1] == "fourth"


async def test_who_leaves_makes_room_for_the_next() -> None:
    requests = Requests()
    with ExitStack() as held:
        await requests.hold("held", HALF, held)
        async with trio.open_nursery() as nursery:
            leaver = trio.CancelScope()

            async def leave() -> None:
                with leaver, ExitStack() as resources:
                    await requests.hold("leaver", MAX_HELD, resources)

            nursery.start_soon(leave)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(requests.hold, "next", HALF, held)
            await trio.testing.wait_all_tasks_blocked()
            assert requests.admitted == ["held"]
            leaver.cancel()
        assert requests.admitted == ["held", "next"]


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

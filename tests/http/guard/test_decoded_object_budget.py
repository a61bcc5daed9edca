"""The object budget: bodies wait to be decoded while current requests hold many objects."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import trio
import trio.testing

from greenroom.http.guard.json_counter import MAX_HELD, MAX_WAIT, UNCOUNTED, DecodedObjectBudget
from greenroom.schemas.problems import ProblemError

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


async def test_one_client_leaves_room_for_others_and_gets_no_more_meanwhile() -> None:
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


async def test_most_of_a_charge_ends_with_the_translation_and_the_rest_with_the_request() -> None:
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

"""Limits and order of concurrent work in client lanes."""

from __future__ import annotations

import trio
import trio.testing

from greenroom.http.guard.byte_account import ClientLanes


class Work:
    """Pieces of work that last until the test ends them."""

    def __init__(self, at_once: int) -> None:
        self.running: list[str] = []
        self._lanes = ClientLanes(at_once)
        self._ends: dict[str, trio.Event] = {}

    async def do(self, client: str, name: str) -> None:
        self._ends[name] = trio.Event()
        async with self._lanes.lane(client):
            self.running.append(name)
            await self._ends[name].wait()
            self.running.remove(name)

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await trio.testing.wait_all_tasks_blocked()


async def test_a_client_waits_behind_its_own_work_and_nobody_else_does(nursery: trio.Nursery) -> None:
    work = Work(2)
    for number in range(5):
        nursery.start_soon(work.do, "10.0.0.1#greedy", f"greedy {number}")
        await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(work.do, "10.0.0.2", "other")
    await trio.testing.wait_all_tasks_blocked()
    assert work.running == ["greedy 0", "other"]
    nursery.start_soon(work.do, "10.0.0.3", "third")
    await trio.testing.wait_all_tasks_blocked()
    assert work.running == ["greedy 0", "other"]
    await work.end("greedy 0")
    assert sorted(work.running) == ["other", "third"]
    nursery.cancel_scope.cancel()


async def test_invented_keys_of_one_address_share_its_lane(nursery: trio.Nursery) -> None:
    work = Work(4)
    for number in range(4):
        nursery.start_soon(work.do, f"10.0.0.1#{number}", f"key {number}")
    nursery.start_soon(work.do, "10.0.0.2#a", "other")
    await trio.testing.wait_all_tasks_blocked()
    assert len(work.running) == 2
    assert "other" in work.running
    nursery.cancel_scope.cancel()


async def test_who_leaves_while_waiting_leaves_nothing_behind() -> None:
    lanes = ClientLanes(1)
    async with lanes.lane("10.0.0.1"):
        with trio.move_on_after(0):
            async with lanes.lane("10.0.0.1"):
                raise AssertionError("two pieces of one client run at once")
    assert lanes._lanes == {}

"""The byte budget of complete answers that wait for slow readers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
import trio.testing

from greenroom.http.guard import byte_account
from greenroom.http.guard.byte_account import UNCOUNTED_BYTES, AnswerAccount, ByteAccount, ClientLanes
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, serving

FULL = Problem(503, "full", "No room.")
PART = {"type": "input_text", "text": "x" * MEGABYTE}


def test_holders_share_the_limit_and_one_that_is_alone_may_have_more() -> None:
    account = ByteAccount(10 * UNCOUNTED_BYTES, FULL)
    account.hold("large", 50 * UNCOUNTED_BYTES)
    with pytest.raises(ProblemError):
        account.hold("other", 3 * UNCOUNTED_BYTES)
    account.hold("small", UNCOUNTED_BYTES)
    account.release("large")
    account.hold("other", 3 * UNCOUNTED_BYTES)
    account.hold("third", 8 * UNCOUNTED_BYTES)
    with pytest.raises(ProblemError):
        account.hold("third", 11 * UNCOUNTED_BYTES)


def test_an_answer_that_is_told_twice_counts_once_and_until_its_request_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(byte_account, "ANSWER_BYTES", 10 * UNCOUNTED_BYTES)
    account = AnswerAccount()
    with ExitStack() as first, ExitStack() as second:
        for _ in range(3):
            account.hold(first, 6 * UNCOUNTED_BYTES)
        account.hold(second, 6 * UNCOUNTED_BYTES)
    with ExitStack() as third:
        account.hold(third, 60 * UNCOUNTED_BYTES)


async def test_readers_that_read_nothing_are_refused_once_they_hold_too_much(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_account, "ANSWER_BYTES", 4 * MEGABYTE)
    settings = Settings(models=(str(tiny_model("qwen3")),), db=str(tmp_path / "store.db"))
    async with serving(settings) as served:
        # Much more than the kernel's buffers take of an unread answer.
        parts = [PART] * 16
        created = await fetch(
            served.server, "POST", "/v1/conversations", {"items": [{"role": "user", "content": parts}]}
        )
        path = f"/v1/conversations/{created.json()['id']}/items"
        async with connected(served.server) as reader:
            await reader.request("GET", path)
            head = await reader.read_until(b"\r\n\r\n")
            assert b" 200 " in head
            assert b"content-length" in head
            refused = await fetch(served.server, "GET", path)
            assert (refused.status, refused.json()["error"]["code"]) == (503, "too_many_answers")
            assert refused.headers["retry-after"] == "1"
            assert (await fetch(served.server, "GET", "/v1/models")).status == 200
        await until_free(served)
        page = (await fetch(served.server, "GET", path)).json()
        assert [len(part["text"]) for part in page["data"][0]["content"]] == [MEGABYTE] * 16


async def until_free(served: Served) -> None:
    """Wait until the server has noticed all closed connections."""
    while served.server.loop.connections:  # noqa: ASYNC110
        await trio.sleep(0.01)


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

"""Streams whose clients leave midway leak nothing and disturb no others."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import attrs
import psutil
import pytest
import trio

from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import RawClient, Served, connected, serving

AT_ONCE = 16
TOKENS = 48
BYTES_PER_REQUEST = 10_000


@attrs.frozen
class ResourceUsage:
    """Resources of this process that requests must not leak."""

    tasks: int
    threads: int
    sockets: int
    resident: int

    @classmethod
    def measure(cls) -> ResourceUsage:
        gc.collect()
        process = psutil.Process()
        tasks = trio.lowlevel.current_statistics().tasks_living
        sockets = len(process.net_connections())
        return cls(tasks, threading.active_count(), sockets, process.memory_info().rss)

    def holds_no_more_than(self, other: ResourceUsage) -> bool:
        """Return whether no count exceeds the other's; memory is not compared."""
        pairs = zip(attrs.astuple(self)[:-1], attrs.astuple(other)[:-1], strict=True)
        return all(mine <= theirs for mine, theirs in pairs)


async def stream(served: Served, number: int, hang_up: bool) -> None:
    body = (
        f'{{"model": "default", "stream": true, "max_tokens": {TOKENS}, "temperature": 0, '
        f'"messages": [{{"role": "user", "content": "request {number}"}}]}}'
    )
    async with connected(served.server) as client:
        await client.request("POST", "/v1/chat/completions", body.encode(), connection="close")
        await read(client, hang_up)


async def read(client: RawClient, hang_up: bool) -> None:
    head = await client.read_until(b"\r\n\r\n")
    assert b" 200 " in head
    if hang_up:
        for _ in range(5):
            await client.read_until(b"data: ")
    else:
        assert b"data: [DONE]" in await client.read_to_end()


async def run_streams(served: Served, requests: int) -> None:
    """Run `requests` streams, a few at once; every second client leaves midway."""
    limiter = trio.CapacityLimiter(AT_ONCE)

    async def one(number: int) -> None:
        async with limiter:
            await stream(served, number, hang_up=number % 2 == 0)

    async with trio.open_nursery() as nursery:
        for number in range(requests):
            nursery.start_soon(one, number)
    await wait_until_idle(served)


async def wait_until_idle(served: Served) -> None:
    """Wait until the pool has no request, and the server no connection."""
    with trio.fail_after(300):
        while True:
            status = await served.system.pool.ask(DescribePool(), PoolStatus)
            assert isinstance(status, PoolStatus)
            idle = all(model.running == model.waiting == 0 for model in status.models)
            if idle and not served.server.loop.connections:
                return
            await trio.sleep(0.05)


async def compare(folder: Path, warm_up: int, *requests: int) -> tuple[ResourceUsage, ResourceUsage]:
    async with serving(Settings(models=(str(folder),))) as served:
        await run_streams(served, warm_up)
        before = ResourceUsage.measure()
        for number in requests:
            await run_streams(served, number)
        after = ResourceUsage.measure()
        with trio.move_on_after(300):
            # Trio keeps idle threads for 10 s, and the pool a timer for half a second.
            while not after.holds_no_more_than(before):
                await trio.sleep(0.25)
                after = ResourceUsage.measure()
        return before, after


async def test_streams_that_hang_up_leave_nothing(tiny_model: Callable[[str], Path]) -> None:
    before, after = await compare(tiny_model("qwen3"), 8, 24)
    assert after.holds_no_more_than(before), (before, after)


@pytest.mark.soak
async def test_memory_does_not_grow_with_requests(tiny_model: Callable[[str], Path]) -> None:
    batches = [200] * 12  # enough to outweigh the size of MLX's buffer cache, which varies by some 20 MB
    before, after = await compare(tiny_model("qwen3"), 400, *batches)
    slope = (after.resident - before.resident) / sum(batches)
    print(f"{slope:.0f} bytes a request; {before} → {after}")
    assert after.holds_no_more_than(before), (before, after)
    assert slope < BYTES_PER_REQUEST

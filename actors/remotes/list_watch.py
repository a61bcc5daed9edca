"""Keeps the lists of the remotes' models, in the background."""

from __future__ import annotations

import time
from typing import Any

import trio

from greenroom.actors.remotes.remote_servers import RemoteServer, RemoteServers, read_list

INTERVALS = {"greenroom": 5.0}
"""Seconds between two lists of a remote, by its api; a Greenroom's tells what is loaded."""
_INTERVAL = 30.0
_LONGEST = 60.0
SECONDS = 10.0
"""Longest time until a list is there."""


async def watch_remotes(remotes: RemoteServers) -> None:
    """Ask the remotes for their models again and again, until cancelled."""
    async with trio.open_nursery() as nursery:
        for server in remotes.servers.values():
            nursery.start_soon(_watch, server)


async def _watch(server: RemoteServer) -> None:
    from greenroom.actors.remotes.remote_client import RemoteClient

    client = RemoteClient(server.name, server.remote, server.record_traffic)
    usual = pause = INTERVALS.get(server.remote.api, _INTERVAL)
    try:
        while True:
            # While the breaker is open nothing is sent; then this is the one request that may try.
            probe, now = object(), time.monotonic()
            if now >= server.busy_until and server.breaker.begin(probe, now):
                was_closed = server.breaker.state(now) == "closed"
                is_there = await _refresh(server, client)
                if not was_closed and is_there:
                    server.breaker.succeed(probe)
                elif not was_closed:
                    server.breaker.fail(probe, time.monotonic(), server.error)
                pause = usual if is_there else min(2 * pause, _LONGEST)
            await trio.sleep(min(pause, max(server.breaker.seconds_left(time.monotonic()), 1.0) + usual))
    finally:
        await client.aclose()


async def _refresh(server: RemoteServer, client: Any) -> bool:
    """Bring the list up to date; return whether the remote has answered."""
    from greenroom.actors.remotes.remote_client import CallFailure

    remote = server.remote
    try:
        key = await trio.to_thread.run_sync(remote.key)
        query = "?limit=1000" if remote.api == "anthropic" else ""
        listed = await client.get(f"{remote.base}/models{query}", key, SECONDS)
    except CallFailure as failure:
        server.record_list(iter(()), failure.reason)
        server.leave_alone(failure.pause)
        return not failure.counts
    except (OSError, ValueError) as error:
        server.record_list(iter(()), str(error))
        return False
    used = None
    if remote.api == "greenroom":
        try:  # a guest's key does not open this
            used = await client.get(f"{remote.root}/admin/models", key, SECONDS)
        except CallFailure:
            used = None
    server.record_list(read_list(remote, listed, used))
    return True

"""Probes of pulled models beside the deletion of their files, with a pool that is busy all the time."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from greenroom.actors.core.ref import Inbox
from greenroom.actors.downloads.upkeep import PulledProbes
from greenroom.engine.catalog.hub.hub_cache import is_marked, unmark
from greenroom.schemas.protocols.pool_protocol import PoolMessage

NAME = "org/chat"


@pytest.fixture
def probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PulledProbes:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--org--chat").mkdir()
    pool: Inbox[PoolMessage] = Inbox()
    return PulledProbes(pool.ref)


async def test_a_probe_that_is_about_to_be_marked_is_held_off(probes: PulledProbes) -> None:
    limiter = trio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = 1
    async with trio.open_nursery() as nursery:
        await limiter.acquire_on_behalf_of("another thread")
        nursery.start_soon(probes.probe_pulled, NAME)
        await trio.testing.wait_all_tasks_blocked()
        assert not is_marked(NAME)
        nursery.start_soon(_release_later, limiter)
        async with probes.held_off(NAME) as gave_way:
            assert gave_way
            assert unmark(NAME)
            await trio.testing.wait_all_tasks_blocked()
            assert not is_marked(NAME)


async def _release_later(limiter: trio.CapacityLimiter) -> None:
    await trio.testing.wait_all_tasks_blocked()
    limiter.release_on_behalf_of("another thread")


async def test_no_probe_begins_while_it_is_held_off(probes: PulledProbes) -> None:
    async with probes.held_off(NAME) as gave_way:
        assert not gave_way
        await probes.probe_pulled(NAME)
        assert not is_marked(NAME)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probes.probe_pulled, NAME)
        while not is_marked(NAME):
            await trio.lowlevel.checkpoint()
        async with probes.held_off(NAME) as gave_way:
            assert gave_way

"""Signs of life of a process, with a real event loop and real pipes."""

from __future__ import annotations

import os
import queue
import select
import threading
import time

import pytest
import trio

from greenroom.actors.core.worker_thread import Activity
from greenroom.http.supervision.beat import Beat, parse_beat
from greenroom.http.supervision.heartbeats import Heartbeats, ParentPipe

INTERVAL = 0.02


def test_a_process_without_watchers_starts_no_thread() -> None:
    before = threading.active_count()
    Heartbeats(INTERVAL, ())
    assert threading.active_count() == before


async def test_beats_come_while_the_loop_answers_and_stop_while_it_is_blocked() -> None:
    beats: queue.SimpleQueue[Beat] = queue.SimpleQueue()
    heartbeats = Heartbeats(INTERVAL, [beats.put])
    heartbeats.follow(trio.lowlevel.current_trio_token())
    heartbeats.enter("serving")
    for _ in range(5):
        assert await trio.to_thread.run_sync(beats.get, True, 60) == Beat("serving")
    blocked_until = time.monotonic() + 20 * INTERVAL
    while not beats.empty():
        beats.get(timeout=60)
    while time.monotonic() < blocked_until:
        pass  # the loop answers nobody
    assert beats.qsize() <= 1, "one answer was on its way"
    with trio.fail_after(60):
        assert await trio.to_thread.run_sync(beats.get, True, 60) == Beat("serving")
    # Leave a loop that goes on, as a real process has until its end.


def test_beats_go_on_after_the_loop_has_ended() -> None:
    beats: queue.SimpleQueue[Beat] = queue.SimpleQueue()
    heartbeats = Heartbeats(INTERVAL, [beats.put])

    async def run() -> None:
        heartbeats.follow(trio.lowlevel.current_trio_token())

    trio.run(run)
    heartbeats.enter("ending")
    for _ in range(5):
        assert beats.get(timeout=60).stage in ("starting", "ending")


def test_work_is_told_before_it_begins() -> None:
    told: list[tuple[bool, tuple[str, ...]]] = []
    activity = Activity(lambda: told.append((activity.importing, activity.models)))
    activity.set_busy("thread 1", "one", True)
    activity.set_busy("thread 1", "one", True)
    activity.set_importing(True)
    activity.set_busy("thread 2", "two", True)
    activity.set_busy("thread 3", "one", True)
    activity.set_busy("thread 1", "one", False)
    activity.set_importing(False)
    activity.set_busy("store", "", True)
    assert told == [
        (False, ("one",)),
        (True, ("one",)),
        (True, ("one", "two")),
        (True, ("one", "two")),
        (True, ("two", "one")),
        (False, ("two", "one")),
    ]


def test_a_parent_that_does_not_read_never_blocks_a_child() -> None:
    read, write = os.pipe()
    pipe = ParentPipe(write)
    for _ in range(10_000):
        pipe.send(Beat("serving"))
    lines = os.read(read, 1 << 20).splitlines()
    assert len(lines) > 100
    assert {parse_beat(line) for line in lines} == {Beat("serving")}
    assert not select.select([read], [], [], 0)[0]
    pipe.send(Beat("ending"))
    assert parse_beat(os.read(read, 4096)) == Beat("ending")


@pytest.mark.parametrize("models", [("org/name",), ("ä" * 250, "b" * 250)])
def test_names_arrive_as_they_are(models: tuple[str, ...]) -> None:
    assert parse_beat(Beat("serving", busy=models).to_line()) == Beat("serving", busy=models)

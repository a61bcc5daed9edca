"""Tests of preemption: clients with the most rows, and answers beyond their reservation, come first."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from greenroom.engine.resources.fair_queue import Holdings
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.sampling_parameters import SamplingParameters
from greenroom.engine.text.scheduler.admission import QueueEntry, WaitingQueue, first_to_preempt
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.scheduler.prefill_queue import PrefillQueue
from greenroom.engine.text.sequence import Sequence
from greenroom.schemas.events.events import Finished
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.engines.sequences import sequence
from greenroom.tests.support.engines.text_engines import Driver, loaded

TinyModel = Callable[..., Path]


def tight(folder: Path, megabytes: float, reserved: int) -> Driver:
    """Return an engine with limited memory for caches and a given reservation per answer."""
    account = MemoryAccount(kv_limit=int(megabytes * (1 << 20)))
    driver = Driver(folder, prefix_cache=PrefixCache(1 << 26), account=account)
    driver.engine.admission.preemption.max_reserved_tokens = reserved
    return driver


def prompt(seed: int, count: int = 230) -> list[int]:
    return random.Random(seed).choices(range(300, 2000), k=count)


def preempted(driver: Driver) -> Counter[str]:
    """Run to the end; return the number of preemptions of each request."""
    with capture_logs() as logs:
        driver.run()
    assert all(isinstance(events[-1], Finished) for events in driver.events.values())
    assert driver.engine.statistics().admission.cut == 0
    return Counter(log["request_id"] for log in logs if log["event"] == "preempted")


@pytest.mark.parametrize("clients", [*deep_only(("one", "many")), ("address#one", "address#many")])
def test_a_client_with_one_answer_goes_on_while_one_with_many_is_preempted(
    tiny_model: TinyModel, clients: tuple[str, str]
) -> None:
    one, many = clients
    driver = tight(tiny_model("qwen3"), 4, reserved=1)
    others = {driver.submit(prompt(seed), 40, client=many) for seed in range(6)}
    driver.submit(prompt(9), 40, client=one)
    stopped = preempted(driver)
    assert stopped
    assert set(stopped) <= others


@pytest.mark.deep
def test_an_answer_is_not_preempted_for_those_that_had_more_than_was_reserved_for_them(
    tiny_model: TinyModel,
) -> None:
    driver = tight(tiny_model("qwen3"), 4.5, reserved=40)
    others = {driver.submit(prompt(seed, 214), 60) for seed in range(6)}
    while driver.engine.statistics().decoding < len(others):
        driver.step()
    for _ in range(20):
        driver.step()
    driver.submit(prompt(9, 20), 40)
    stopped = preempted(driver)
    assert stopped
    assert set(stopped) <= others


def test_of_equal_clients_the_answer_that_began_last_is_preempted_whenever_it_was_asked_for(
    tiny_model: TinyModel,
) -> None:
    driver = tight(tiny_model("qwen3"), 1.5, reserved=1)
    driver.submit(prompt(1, 200), 10, client="early")
    later = driver.submit(prompt(2), 30, client="early")
    sooner = driver.submit(prompt(3), 60, client="late")
    while not driver.events[sooner]:
        driver.step()
    assert not driver.events[later]
    assert set(preempted(driver)) == {later}


def test_a_prompt_that_resumes_is_computed_before_those_of_its_client_that_began_later(
    tiny_model: TinyModel,
) -> None:
    queue = PrefillQueue(loaded(tiny_model("qwen3"))[0], PrefillPolicy(max_chunk=100))
    for serial in (2, 3, 4, 1):
        resumed = sequence(str(serial), 300)
        resumed.serial = serial
        queue.add(resumed, client="one")
    ((first, _),), _ = queue.advance(decode_ms=1.0)
    assert first.request_id == "1"


MOVES = st.lists(
    st.tuples(st.sampled_from(["new", "preempt", "admit", "remove"]), st.integers(0, 9)), max_size=80
)
IDLE = SamplingParameters.of(GenerationParameters(), frozenset(), 0)


def entry(serial: int, client: str, max_tokens: int = 5, tokens: int = 10) -> QueueEntry:
    text = cast(Any, None)  # nothing of it is decoded
    prompt = [1] * (1 + serial % 7)
    sequence = Sequence(str(serial), prompt, max_tokens, frozenset(), IDLE, text, serial=serial)
    return QueueEntry(sequence, client=client, conversation=str(serial), tokens=tokens)


@given(MOVES)
def test_preempted_sequences_come_first_unless_a_client_holds_less_and_none_is_lost(
    moves: list[tuple[str, int]],
) -> None:
    queue, waiting = WaitingQueue(), dict[int, QueueEntry]()
    running = {serial: entry(serial, f"client {serial % 2}") for serial in range(6)}
    for serial, (move, number) in enumerate(moves, len(running)):
        if move == "new":
            waiting[serial] = entry(serial, f"client {number % 3}")
            queue.add(waiting[serial])
        elif move == "preempt" and running:
            youngest = max(running)
            waiting[youngest] = running.pop(youngest)
            waiting[youngest].sequence.preempt()
            queue.add(waiting[youngest])
        elif move == "remove" and waiting:
            queue.remove(waiting.pop(sorted(waiting)[number % len(waiting)]).sequence)
        elif move == "admit":
            held = Holdings((one.client, 1) for one in running.values())
            scarce = held if number % 2 == 0 else None
            first = queue.peek(scarce)
            preempted = [one for one in sorted(waiting) if waiting[one].sequence.preempted]
            if first is None:
                assert not waiting
            elif scarce is None:
                assert first is waiting[min(preempted or waiting)]
            elif preempted:
                resumed = waiting[min(preempted, key=lambda one: (held.of(waiting[one].client), one))]
                fewer = [one for one in waiting.values() if held.of(one.client) < held.of(resumed.client)]
                assert first in fewer if fewer else first is resumed
            if first is not None:
                assert queue.peek(scarce) is first
                queue.pop(first)
                running[first.sequence.serial] = waiting.pop(first.sequence.serial)
        assert {one.sequence.serial for one in queue} == set(waiting)
        assert len(queue) == len(waiting)


def test_whose_last_request_was_large_competes_as_a_newcomer_after_an_idle_time() -> None:
    queue = WaitingQueue()
    large = entry(0, "before")
    large.tokens = 8_000
    queue.add(large)
    queue.add(entry(1, "other"))
    for _ in range(2):
        queue.pop(_first(queue))
    for at in range(10):
        queue.add(entry(2 + at, "before"))
        queue.add(entry(12 + at, "new"))
    turns = []
    for _ in range(10):
        turns.append(_first(queue).client)
        queue.pop(_first(queue))
    assert turns.count("before") == 5


def _first(queue: WaitingQueue) -> QueueEntry:
    first = queue.peek(Holdings([]))
    assert first is not None
    return first


def test_an_answer_that_resumes_may_have_all_that_is_reserved_before_it_is_preempted_again() -> None:
    entries = [entry(serial, "client", max_tokens=1_000, tokens=101 + serial) for serial in range(3)]
    stopped: Counter[int] = Counter()
    for _ in range(1_000):
        for one in entries:
            one.sequence.answer.append(7)
            one.sequence.sampled = one.sequence.generated = len(one.sequence.answer)
        while any(one.is_overdrawn for one in entries):
            first = first_to_preempt(entries)
            assert first.is_overdrawn
            first.preempt(100)
            stopped[first.sequence.serial] += 1
    assert stopped == {0: 9, 1: 9, 2: 9}

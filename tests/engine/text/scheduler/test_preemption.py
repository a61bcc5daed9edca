"""Tests of preemption: clients with the most rows, and answers beyond their reservation, come first."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from greenroom.engine.resources.account import MemoryAccount
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.scheduler.prefill_queue import PrefillQueue
from greenroom.schemas.events.events import Finished
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


@pytest.mark.parametrize("clients", [("one", "many"), ("address#one", "address#many")])
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

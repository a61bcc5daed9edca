"""Prompts that arrive together at an idle engine: all are computed before their rows decode."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from greenroom.engine.scheduler.prefill_policy import PrefillPolicy
from greenroom.schemas.events import Finished
from greenroom.tests.support.text_engines import Driver, expected

TinyModel = Callable[..., Path]
BURST = [tuple(range(start, start + 40)) for start in range(100, 900, 100)]
LONG = tuple(index % 1900 + 5 for index in range(3000))
TOKENS = 6


def policy(burst_ms: float) -> PrefillPolicy:
    """One of these prompts in a slice and one slice a step, whatever they cost."""
    return PrefillPolicy(batching_window_ms=burst_ms, idle_ms=1e-3, min_chunk=45)


def ends(driver: Driver) -> list[int]:
    """The step after which each request was finished, in the order in which they were submitted."""
    ended: dict[str, int] = {}
    step = 0
    while driver.engine.has_work:
        driver.step()
        step += 1
        for request_id, events in driver.events.items():
            if events and isinstance(events[-1], Finished):
                ended.setdefault(request_id, step)
    return [ended[str(number)] for number in range(len(ended))]


def submit(driver: Driver, prompts: Sequence[Sequence[int]]) -> None:
    for prompt in prompts:
        driver.submit(prompt, TOKENS)


@pytest.mark.parametrize("kind", ["qwen3", "gemma3", "lfm2"])
def test_a_burst_decodes_together(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    driver = Driver(folder, policy(math.inf))
    submit(driver, BURST)
    assert len(set(ends(driver))) == 1
    assert driver.tokens == [expected(folder, prompt, TOKENS) for prompt in BURST]


def test_who_comes_while_the_first_of_a_burst_is_computed_belongs_to_it(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), policy(math.inf))
    submit(driver, BURST[:1])
    driver.step()
    submit(driver, BURST[1:])
    assert len(set(ends(driver))) == 1


def test_no_row_waits_for_others_beyond_what_is_allowed(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), policy(0))
    submit(driver, BURST)
    assert len(set(ends(driver))) > 1


def test_a_long_prompt_is_not_waited_for(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), policy(math.inf))
    submit(driver, [*BURST, LONG])
    *short, long = ends(driver)
    assert max(short) < long


def test_who_is_cancelled_while_it_waits_for_its_burst_leaves_the_others_alone(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, policy(math.inf))
    submit(driver, BURST)
    for _ in range(3):
        driver.step()
    driver.engine.cancel("0")
    driver.engine.cancel("7")
    driver.run()
    assert driver.tokens[1:7] == [expected(folder, prompt, TOKENS) for prompt in BURST[1:7]]
    assert driver.tokens[0] == driver.tokens[7] == []

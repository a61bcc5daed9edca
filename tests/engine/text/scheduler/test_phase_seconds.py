"""The seconds of prefill and decode that a text engine counts, with fixed costs and a counted clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.engine.text.drafters import PromptLookup
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.speculation import Speculation
from greenroom.schemas.events.statistics import PhaseSeconds
from greenroom.tests.support.engines.fixed_costs import FixedCosts
from greenroom.tests.support.engines.text_engines import Driver

TinyModel = Callable[..., Path]
PROMPT = range(100, 140)


def phases(driver: Driver) -> PhaseSeconds:
    """Return the seconds so far."""
    return driver.engine.snapshot().phases


def test_a_prompt_alone_counts_as_prefill_and_its_answer_as_decode(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"))
    assert phases(driver) == PhaseSeconds()
    began = driver.clock.now
    driver.submit(PROMPT, 1)
    driver.run()
    assert 0 < phases(driver).prefill <= driver.clock.now - began
    assert phases(driver).decode == 0
    before = phases(driver)
    began = driver.clock.now
    driver.submit(PROMPT, 30)
    driver.run()
    after = phases(driver)
    spent = driver.clock.now - began
    assert 0 < after.prefill - before.prefill < 0.3 * spent
    assert 0.5 * spent < after.decode - before.decode < spent


def test_idle_hours_count_as_neither(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"))
    for _ in range(2):
        driver.submit(PROMPT, 1_000)
        for _ in range(10):
            driver.step()
        driver.engine.cancel(list(driver.events)[-1])
        driver.run()
        driver.clock.now += 3_600
    assert 0 < phases(driver).decode < 1
    assert 0 < phases(driver).prefill < 1


@pytest.mark.deep
def test_a_step_of_both_is_divided_as_they_are_predicted_to_cost(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), PrefillPolicy(min_chunk=32, max_chunk=32, step_ms=100))
    driver.submit(PROMPT, 100)
    for _ in range(10):
        driver.step()
    before = phases(driver)
    driver.submit([100 + index % 900 for index in range(3_200)], 1)
    for _ in range(50):
        driver.step()
    after = phases(driver)
    costs = FixedCosts()
    shorter = costs.prefill_ms([(1, 32, 32)]) / costs.decode_ms([(1, 100)])
    longer = costs.prefill_ms([(1, 32, 1_600)]) / costs.decode_ms([(1, 40)])
    measured = (after.prefill - before.prefill) / (after.decode - before.decode)
    assert 0.9 * shorter < measured < longer


def test_drafted_answers_count_as_decode(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), speculation=Speculation(PromptLookup()))
    driver.submit([100, 101, 102, 103] * 20, 60)
    driver.run()
    assert driver.engine.statistics().speculation
    assert phases(driver).decode > phases(driver).prefill > 0
    assert phases(driver).decode == pytest.approx(driver.clock.now, rel=0.5)

"""Tests of the batching window for prompts that arrive together at an idle engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from greenroom.engine.text.batch_cache import PrefilledSequences
from greenroom.engine.text.scheduler.prefill_policy import BatchingWindow, PrefillPolicy, PrefillRequest
from greenroom.tests.support.engines.sequences import sequence
from greenroom.tests.support.engines.text_engines import Driver, expected

TinyModel = Callable[..., Path]
BURST = [tuple(range(start, start + 40)) for start in range(100, 900, 100)]
LONG = tuple(index % 1900 + 5 for index in range(3000))
TOKENS = 6


def policy(batching_window_ms: float) -> PrefillPolicy:
    """Prefill policy with one of these prompts per chunk and one chunk per step, except for the window."""
    return PrefillPolicy(max_stall=1e-9, idle_ms=1e-3, batching_window_ms=batching_window_ms, min_chunk=45)


def first_tokens(driver: Driver) -> list[int]:
    """Run to the end; return the step of each request's first token, in order of submission."""
    first: dict[int, int] = {}
    step = 0
    while driver.engine.has_work:
        driver.step()
        step += 1
        for index, tokens in enumerate(driver.tokens):
            if tokens:
                first.setdefault(index, step)
    return [first[index] for index in range(len(first))]


def submit(driver: Driver, prompts: Sequence[Sequence[int]]) -> None:
    for prompt in prompts:
        driver.submit(prompt, TOKENS)


@pytest.mark.parametrize("kind", ["qwen3", "gemma3", "lfm2"])
def test_a_first_token_goes_out_when_its_prompt_is_done(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    driver = Driver(folder, policy(0))
    submit(driver, BURST)
    first = first_tokens(driver)
    assert first == list(range(first[0], first[0] + len(BURST)))
    assert driver.tokens == [expected(folder, prompt, TOKENS) for prompt in BURST]


def test_the_rest_of_a_burst_is_computed_in_the_window(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, policy(math.inf))
    submit(driver, BURST)
    first = first_tokens(driver)
    assert first == [first[0], *[first[0] + 1] * (len(BURST) - 1)]
    assert driver.tokens == [expected(folder, prompt, TOKENS) for prompt in BURST]


def test_prompts_that_come_later_than_the_window_do_not_belong_to_the_burst() -> None:
    window = BatchingWindow(PrefillPolicy(batching_window_ms=150))
    first, beside, soon, late = (PrefillRequest(sequence(str(index), 40)) for index in range(4))
    long = PrefillRequest(sequence("long", 3000))
    window.open(PrefilledSequences((first.sequence,), []), [beside], now=10.0)
    window.add(soon, now=10.14)
    window.add(long, now=10.14)
    window.add(late, now=10.16)
    assert [window.covers(request) for request in (beside, soon, long, late)] == [True, True, False, False]


@pytest.mark.deep
def test_a_long_prompt_does_not_belong_to_the_burst(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), policy(math.inf))
    submit(driver, [*BURST, LONG])
    *short, long = first_tokens(driver)
    assert long > max(short) + TOKENS


def test_cancelling_within_a_burst_leaves_the_others_alone(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, policy(0))
    submit(driver, BURST)
    for _ in range(3):
        driver.step()
    driver.engine.cancel("0")
    driver.engine.cancel("7")
    driver.run()
    assert driver.tokens[1:7] == [expected(folder, prompt, TOKENS) for prompt in BURST[1:7]]
    assert len(driver.tokens[0]) < TOKENS
    assert driver.tokens[7] == []


def test_a_window_is_150_ms_and_only_for_those_who_came_together() -> None:
    policy = PrefillPolicy()
    assert policy.budget(1.0, waiting=30, window=True) == 150
    assert policy.budget(1.0, waiting=30) < 150

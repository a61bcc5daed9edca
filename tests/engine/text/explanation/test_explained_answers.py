"""Tests of explanations of single answers: the figures equal what the engine did."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.engine.resources.account import MemoryAccount
from greenroom.engine.text.prefix_cache.disk_tier import DiskTier
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.schemas.events.events import Finished
from greenroom.schemas.events.explanation import Explanation
from greenroom.tests.support.engines.text_engines import Driver
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.texts.prompts import ask, turn_ends, words

BUDGET = 1 << 24
FINGERPRINT = "0123456789abcdef" * 2


def explain(driver: Driver, prompt: list[int], client: str = "") -> tuple[Explanation, Finished]:
    request = driver.submit(prompt, 2, client=client, checkpoints=turn_ends(prompt))
    driver.run()
    last = driver.events[request][-1]
    assert isinstance(last, Finished)
    assert last.explanation is not None
    return last.explanation, last


def test_a_changed_prompt_costs_what_is_computed_again(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), prefix_cache=PrefixCache(BUDGET))
    explain(driver, [*words(100, 1), 7, *words(400, 2)])
    explanation, finished = explain(driver, [*words(100, 1), 8, 9, *words(400, 2), *words(98, 3)])
    prefix = explanation.prefix
    assert (prefix.reason, prefix.part) == ("changed", "prompt")
    assert (prefix.shared_tokens, prefix.repeated_tokens) == (100, 400)
    assert explanation.cached.memory == finished.usage.cached == 100
    assert prefix.repeated_seconds == pytest.approx(finished.timing.prefill * 400 / 500, rel=0.01)


def test_an_evicted_prompt_is_told_from_a_changed_one(tiny_model: TinyModel) -> None:
    cache = PrefixCache(BUDGET)
    driver = Driver(tiny_model("qwen3"), prefix_cache=cache)
    prompt = words(300, 1)
    explain(driver, prompt)
    cache.memory.evict_to(0)
    explanation, _ = explain(driver, [*prompt, *words(20, 2)])
    assert explanation.prefix.reason == "not_cached"
    assert explanation.prefix.repeated_tokens == 300


def test_a_model_with_states_names_its_lack_of_a_checkpoint(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("lfm2"), prefix_cache=PrefixCache(BUDGET))
    explain(driver, words(300, 1))
    explanation, finished = explain(driver, [*words(200, 1), *words(50, 2)])
    assert finished.usage.cached == 0
    assert (explanation.prefix.reason, explanation.prefix.repeated_tokens) == ("no_checkpoint", 200)


def test_without_a_cache_the_reason_is_that(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), prefix_cache=PrefixCache(0))
    reasons = [explain(driver, words(100, 1))[0].prefix.reason for _ in range(2)]
    assert reasons == ["off", "off"]


def test_tokens_of_the_disk_are_counted_apart(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder, prompt = tiny_model("qwen3"), words(500, 1)
    first = Driver(folder, prefix_cache=PrefixCache(BUDGET, DiskTier(tmp_path, FINGERPRINT, 1 << 30)))
    ask(first, prompt)
    first.engine.close()
    second = Driver(folder, prefix_cache=PrefixCache(BUDGET, DiskTier(tmp_path, FINGERPRINT, 1 << 30)))
    longer = [*prompt, *words(50, 2)]
    from_disk, finished = explain(second, longer)
    from_memory, _ = explain(second, longer)
    assert (from_disk.cached.memory, from_disk.cached.disk) == (0, finished.usage.cached)
    assert from_disk.cached.disk >= 499
    assert from_disk.prefix.reason == "first"
    assert (from_memory.cached.memory, from_memory.cached.disk) == (549, 0)


def test_preempted_answers_tell_how_often_and_what_was_computed_again(tiny_model: TinyModel) -> None:
    account = MemoryAccount(kv_limit=4 << 20)
    driver = Driver(tiny_model("qwen3"), prefix_cache=PrefixCache(1 << 26), account=account)
    driver.engine.admission.preemption.max_reserved_tokens = 1
    for seed in range(7):
        driver.submit(words(230, seed), 40)
    driver.run()
    ends = [events[-1] for events in driver.events.values()]
    told = [end.explanation.preempted for end in ends if isinstance(end, Finished) and end.explanation]
    assert len(told) == 7
    statistics = driver.engine.statistics().admission
    assert sum(each.count for each in told) == statistics.preempted > 0
    for each in told:
        assert (each.tokens > 0) == (each.seconds > 0) == (each.count > 0)


def test_a_prompt_tells_that_it_waited_for_another_with_its_beginning(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), prefix_cache=PrefixCache(BUDGET))
    system = words(900, 4)
    requests = [driver.submit(system + words(20, seed), 4) for seed in (1, 2)]
    driver.run()
    waits = []
    for request in requests:
        last = driver.events[request][-1]
        assert isinstance(last, Finished)
        assert last.explanation is not None
        waits.append(last.explanation.waits)
        total = waits[-1].memory + waits[-1].prefix + waits[-1].turn
        assert total == pytest.approx(last.timing.queued, abs=1e-3)
    assert waits[0].prefix == 0.0
    assert waits[1].prefix > 0.0

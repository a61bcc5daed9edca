"""Tests of the row limit: an engine runs no more sequences at once, and other choices follow in turn."""

from __future__ import annotations

import random

import pytest

from greenroom.engine.kv_cache.size_model import CacheSizeModel
from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.scheduler.admission import MAX_PASSED
from greenroom.schemas.events.events import Failed, Finished, PromptProgress, TextDelta
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.engines.text_engines import Driver, loaded
from greenroom.tests.support.models.tiny_models import TinyModel

PROMPTS = [random.Random(seed).choices(range(300, 2000), k=20 + 30 * seed) for seed in range(4)]
PARAMETERS = [GenerationParameters(seed=seed, n=n) for seed, n in enumerate((7, 1, 3, 5))]
SAMPLED = GenerationParameters(seed=7, n=3)
ROWS = 3


def submit_all(driver: Driver) -> None:
    for prompt, parameters in zip(PROMPTS, PARAMETERS, strict=True):
        driver.submit(prompt, 6, parameters)


def most_rows(driver: Driver) -> int:
    """Run to the end; return the largest number of sequences running at once."""
    most = 0
    while driver.engine.has_work:
        driver.step()
        now = driver.engine.statistics()
        most = max(most, now.decoding + now.prefilling + now.prefilled)
    return most


@pytest.mark.parametrize("kind", ["qwen3", *deep_only("llama4")])
def test_answers_are_the_same_however_few_rows_there_are(tiny_model: TinyModel, kind: str) -> None:
    """Includes caches that cannot be merged, whose choices decode in batches of their own (llama4)."""
    unbounded, bounded = Driver(tiny_model(kind)), Driver(tiny_model(kind), max_rows=ROWS)
    for driver in (unbounded, bounded):
        submit_all(driver)
    assert most_rows(unbounded) > 3 * ROWS
    assert most_rows(bounded) == ROWS
    assert bounded.tokens == unbounded.tokens
    for index, parameters in enumerate(PARAMETERS):
        ends = [event for event in bounded.events[str(index)] if isinstance(event, Finished)]
        assert sorted(end.index for end in ends) == list(range(parameters.n))
        assert {(end.usage.prompt, end.usage.generated) for end in ends} == {(len(PROMPTS[index]), 6)}
    assert bounded.engine.statistics().requests == 0
    assert bounded.engine.statistics().admission.preempted == 0


def test_choices_that_follow_find_the_prompt_computed_and_report_no_progress_of_their_own(
    tiny_model: TinyModel,
) -> None:
    driver = Driver(tiny_model("qwen3"), prefix_cache=PrefixCache(64 << 20), max_rows=1)
    prompt = random.Random(9).choices(range(300, 2000), k=400)
    driver.submit(prompt, 5, GenerationParameters(seed=1, n=3))
    assert most_rows(driver) == 1
    events = driver.events["0"]
    cached = [event.usage.cached for event in events if isinstance(event, Finished)]
    assert cached[0] == 0
    assert min(cached[1:]) >= len(prompt) - 32
    last_progress = max(i for i, event in enumerate(events) if isinstance(event, PromptProgress))
    assert last_progress < min(i for i, event in enumerate(events) if isinstance(event, Finished))


def test_a_request_is_cancelled_with_the_choices_that_have_not_begun(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), max_rows=2)
    driver.submit(PROMPTS[0], 50, GenerationParameters(n=5))
    driver.submit(PROMPTS[1], 12)
    for _ in range(8):
        driver.step()
    driver.engine.cancel("0")
    assert most_rows(driver) == 1
    ends = [event for event in driver.events["0"] if isinstance(event, Finished)]
    assert sorted((end.index, end.reason) for end in ends) == [(index, "cancelled") for index in range(5)]
    assert len(driver.tokens[-1]) == 12


def test_choices_that_follow_fail_with_their_request_once_nothing_of_it_fits(tiny_model: TinyModel) -> None:
    folder, prompt = tiny_model("qwen3"), random.Random(9).choices(range(300, 2000), k=700)
    limit = int(1.6 * CacheSizeModel.of(loaded(folder)[0]).nbytes(1, 700))
    account = MemoryAccount(limit)
    driver = Driver(folder, account=account, max_rows=2)
    driver.submit(PROMPTS[0], 6)
    driver.step()
    name = driver.submit(prompt, 6, SAMPLED)
    driver.step()
    assert driver.engine.statistics().waiting == 3  # which do not fit beside the first request
    assert Share(account).charge_weights(limit // 2) is None
    driver.run()
    (failed,) = driver.events[name]
    assert isinstance(failed, Failed)
    assert failed.problem.code == "context_length_exceeded"


@pytest.mark.deep
def test_rows_that_are_preempted_for_memory_count_when_they_resume(tiny_model: TinyModel) -> None:
    unbounded = Driver(tiny_model("qwen3"))
    tight = Driver(tiny_model("qwen3"), account=MemoryAccount(kv_limit=2_500_000), max_rows=ROWS)
    tight.engine.admission.preemption.max_reserved_tokens = 1
    for driver in (unbounded, tight):
        for seed in range(2):
            driver.submit(random.Random(seed).choices(range(300, 2000), k=248), 12, SAMPLED)
    unbounded.run()
    assert most_rows(tight) <= ROWS
    assert tight.engine.statistics().admission.preempted
    assert tight.tokens == unbounded.tokens


def steps_to_first_token(driver: Driver, prompt: list[int], client: str) -> int:
    before = driver.engine.statistics().steps
    request_id = driver.submit(prompt, 200, client=client)
    while not any(isinstance(event, TextDelta) for event in driver.events[request_id]):
        driver.step()
    return driver.engine.statistics().steps - before


def fill(driver: Driver, requests: int, n: int, max_tokens: int = 300) -> None:
    """Let a client take all rows."""
    for seed in range(requests):
        driver.submit(PROMPTS[0], max_tokens, GenerationParameters(seed=seed, n=n), client="many")
    while driver.engine.statistics().decoding < 8:
        driver.step()


@pytest.mark.parametrize("kind", ["qwen3", "llama4"])
@pytest.mark.parametrize(("requests", "n"), [(4, 4), (1, 20), (12, 1)])
def test_who_took_all_rows_shares_them_at_the_next_step(
    tiny_model: TinyModel, kind: str, requests: int, n: int
) -> None:
    alone = steps_to_first_token(Driver(tiny_model(kind), max_rows=8), PROMPTS[1], "one")
    driver = Driver(tiny_model(kind), max_rows=8)
    fill(driver, requests, n)
    for client in ("one", "other"):
        assert steps_to_first_token(driver, PROMPTS[1], client) <= alone + 2
        now = driver.engine.statistics()
        assert now.decoding + now.prefilling + now.prefilled == 8
    assert all(not any(isinstance(each, Finished) for each in driver.events[str(i)]) for i in range(requests))


@pytest.mark.deep
def test_answers_that_made_way_are_the_same_afterwards(tiny_model: TinyModel) -> None:
    unbounded, shared = Driver(tiny_model("qwen3")), Driver(tiny_model("qwen3"), max_rows=8)
    for driver in (unbounded, shared):
        fill(driver, 2, 4, max_tokens=40)
        driver.submit(PROMPTS[1], 20, GenerationParameters(seed=3, n=6), client="one")
    assert most_rows(unbounded) == 14
    assert most_rows(shared) == 8
    assert shared.engine.statistics().admission.preempted == 4
    assert shared.tokens == unbounded.tokens


@pytest.mark.deep
def test_each_of_three_clients_gets_its_third_and_nobody_makes_way_for_who_holds_as_much(
    tiny_model: TinyModel,
) -> None:
    driver = Driver(tiny_model("qwen3"), max_rows=6)
    for client in ("a", "b", "c"):
        for seed in range(6):
            driver.submit(PROMPTS[0], 60, GenerationParameters(seed=seed), client=client)
        for _ in range(10):
            driver.step()
    before = driver.engine.statistics().admission.preempted
    assert before == 3 + 2
    for _ in range(20):
        driver.step()
    assert driver.engine.statistics().admission.preempted == before


def test_a_prompt_without_memory_is_passed_by_so_many_and_no_more(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"), account=MemoryAccount(kv_limit=2_500_000))
    driver.submit(PROMPTS[3], 150, client="long")
    driver.step()
    large = driver.submit(PROMPTS[3], 150, client="large")
    small = [driver.submit(PROMPTS[0], 3, client="small") for _ in range(2 * MAX_PASSED)]
    while not driver.events[large]:
        driver.step()
    assert MAX_PASSED <= sum(bool(driver.events[each]) for each in small) <= MAX_PASSED + 2


@pytest.mark.deep
def test_a_prompt_that_lacks_memory_gets_it_from_who_holds_the_most(tiny_model: TinyModel) -> None:
    account = MemoryAccount(kv_limit=4_000_000)
    driver = Driver(tiny_model("qwen3"), account=account)
    driver.engine.admission.preemption.max_reserved_tokens = 100
    for seed in range(12):
        driver.submit(PROMPTS[3], 90, GenerationParameters(seed=seed), client="many")
    for _ in range(20):
        driver.step()
    assert driver.engine.statistics().waiting
    alone = steps_to_first_token(Driver(tiny_model("qwen3"), account=MemoryAccount()), PROMPTS[1], "one")
    assert steps_to_first_token(driver, PROMPTS[1], "one") <= alone + 2
    driver.run()
    assert all(isinstance(events[-1], Finished) for events in driver.events.values())

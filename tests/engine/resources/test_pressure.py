"""Memory pressure: evictions and preemptions do not change any answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.text_engine import TextEngine
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent, PromptProgress, TextDelta
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.requests import Constraint, RegexFormat
from greenroom.tests.support.engines.text_engines import GREEDY, Driver, QuantizedCacheModel, expected, loaded
from greenroom.tests.support.grammars.grammar_walks import Grammars
from greenroom.tests.support.models.tiny_kinds import DEEPER

TinyModel = Callable[..., Path]
MEGABYTE = 1 << 20

SETTINGS = (
    GREEDY,
    GenerationParameters(temperature=0.9, seed=5, presence_penalty=0.7, repetition_penalty=1.2),
    GenerationParameters(temperature=1.0, seed=6, top_p=0.9, frequency_penalty=0.4),
    GenerationParameters(temperature=0.0, logprobs=True, top_logprobs=2),
    GenerationParameters(temperature=0.8, seed=7, n=2),
)


def words(seed: int, count: int = 230) -> tuple[int, ...]:
    """Return a prompt; those of this length outgrow the cache's growth step of 256 in a short answer."""
    return tuple(random.Random(seed).choices(range(300, 2000), k=count))


def tight(folder: Path, megabytes: float, reserved: int = 1) -> tuple[Driver, MemoryAccount]:
    """Return an engine that admits more than fits, because it reserves almost nothing for answers."""
    account = MemoryAccount(kv_limit=int(megabytes * MEGABYTE))
    driver = Driver(folder, prefix_cache=PrefixCache(64 * MEGABYTE), account=account)
    driver.engine.admission.preemption.max_reserved_tokens = reserved
    return driver, account


def run(driver: Driver, account: MemoryAccount) -> None:
    """Step until all requests end, and check the limit at each step."""
    most = driver.engine.statistics().steps + 20_000
    while driver.engine.has_work:
        driver.step()
        assert driver.engine.statistics().steps < most, driver.engine.statistics()
        assert account.kv_limit is not None
        assert account.statistics().peak <= account.kv_limit


def ask(driver: Driver, count: int) -> None:
    choose = random.Random(3)
    for index in range(count):
        driver.submit(words(index, choose.randrange(215, 250)), 60, SETTINGS[index % len(SETTINGS)])


def without_times(events: Sequence[InferenceEvent]) -> list[Any]:
    """Return a client's events without times, with the text of each choice joined."""
    said: dict[int, list[Any]] = {}
    for event in events:
        if isinstance(event, TextDelta):
            scores = [s.token for s in event.logprobs]
            said.setdefault(event.index, []).extend([event.text, *scores])
        elif isinstance(event, Finished):
            usage = (event.usage.prompt, event.usage.generated)
            said.setdefault(event.index, []).append((event.reason, usage))
        else:
            assert isinstance(event, PromptProgress), event
    return sorted(said.items())


def logprobs_in(events: Sequence[InferenceEvent]) -> list[float]:
    return [score.logprob for event in events if isinstance(event, TextDelta) for score in event.logprobs]


@pytest.mark.deep
@pytest.mark.parametrize(
    "kind",
    ["qwen3", pytest.param("gemma3", marks=pytest.mark.soak), pytest.param("lfm2", marks=pytest.mark.soak)],
)
def test_a_preempted_sequence_resumes_with_the_same_answer(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    free = Driver(folder)
    ask(free, 12)
    free.run()
    driver, account = tight(folder, 4 if kind == "qwen3" else 2.5)
    ask(driver, 12)
    run(driver, account)
    statistics = driver.engine.statistics().admission
    assert statistics.preempted  # how many times depends on how fast prompts are computed: 2 to 5 were seen
    assert statistics.cut == 0
    assert driver.tokens == free.tokens
    for request_id, events in free.events.items():
        assert without_times(driver.events[request_id]) == without_times(events)
        assert logprobs_in(driver.events[request_id]) == pytest.approx(logprobs_in(events), abs=1e-3)


@pytest.mark.deep
def test_the_prefix_cache_is_evicted_first(tiny_model: TinyModel) -> None:
    driver, account = tight(tiny_model("qwen3"), 5, reserved=1024)
    for seed in range(6):
        driver.submit(random.Random(seed).choices(range(300, 2000), k=300), 20)
        run(driver, account)
    before = driver.engine.statistics().prefix_cache
    assert before is not None
    assert before.nbytes > MEGABYTE
    for seed in range(3):
        driver.submit(random.Random(90 + seed).choices(range(300, 2000), k=200), 60)
    run(driver, account)
    statistics = driver.engine.statistics()
    assert statistics.prefix_cache is not None
    assert statistics.prefix_cache.evictions > before.evictions
    assert statistics.admission.preempted == 0


@pytest.mark.deep
def test_prompts_wait_while_those_that_run_may_need_the_memory(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3", **DEEPER)
    driver, _ = tight(folder, 4, reserved=1024)
    for start in range(300, 305):
        driver.submit(words(start), 60)
    most = 0
    while driver.engine.has_work:
        driver.step()
        most = max(most, driver.engine.statistics().decoding)
    assert most == 3  # of 1 MB each, and room for the copy of a layer
    assert driver.engine.statistics().admission.preempted == 0
    assert driver.tokens == [expected(folder, words(seed), 60) for seed in range(300, 305)]


def test_a_sequence_that_does_not_fit_alone_ends_with_length(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver, account = tight(folder, 1)
    driver.submit(words(1), 2000)
    run(driver, account)
    last = driver.events["0"][-1]
    assert isinstance(last, Finished)
    assert last.reason == "length"
    assert 20 < last.usage.generated < 30
    assert driver.tokens[0] == expected(folder, words(1), last.usage.generated)
    driver.submit(words(2), 20)
    run(driver, account)
    assert driver.tokens[1] == expected(folder, words(2), 20)


@pytest.mark.deep
def test_rows_that_were_preempted_are_removed_though_no_larger_layer_would_fit(tiny_model: TinyModel) -> None:
    """Two rows of 512 tokens leave enough memory for a copy of a layer, but not of a grown one."""
    driver, account = tight(tiny_model("qwen3"), 2.6)
    for seed in range(2):
        driver.submit(words(seed, 240), 280)
    run(driver, account)
    statistics = driver.engine.statistics().admission
    assert (statistics.preempted, statistics.cut) == (1, 0)
    assert [len(tokens) for tokens in driver.tokens] == [280, 280]


def test_a_prompt_that_can_never_fit_is_refused(tiny_model: TinyModel) -> None:
    driver, account = tight(tiny_model("qwen3"), 2)
    driver.submit([300] * 2000, 10)
    driver.submit([300] * 200, 10)
    run(driver, account)
    (event,) = driver.events["0"]
    assert isinstance(event, Failed)
    assert (event.problem.status, event.problem.code) == (400, "context_length_exceeded")
    assert "kv_cache_bytes" in event.problem.detail
    assert isinstance(driver.events["1"][-1], Finished)


def test_a_prompt_that_no_longer_fits_does_not_wait_for_ever(tiny_model: TinyModel) -> None:
    account = MemoryAccount(limit=8 * MEGABYTE)
    driver = Driver(tiny_model("qwen3"), account=account)
    other = Share(account)
    assert other.charge_running(15 * MEGABYTE // 2)
    driver.submit(words(1), 20)
    for _ in range(3):
        driver.step()
    assert driver.events["0"] == []
    assert other.charge_running(0)
    assert other.charge_weights(15 * MEGABYTE // 2) is None
    driver.run()
    (event,) = driver.events["0"]
    assert isinstance(event, Failed)
    assert (event.problem.status, event.problem.code) == (400, "context_length_exceeded")


def test_choices_end_together_if_their_prompt_no_longer_fits_after_it_was_preempted(
    tiny_model: TinyModel,
) -> None:
    """Its prompt was preempted before prefill, so none of its choices has begun."""
    account = MemoryAccount(limit=6 * MEGABYTE)
    driver = Driver(tiny_model("qwen3"), PrefillPolicy(min_chunk=4, max_chunk=4), account=account)
    driver.engine.admission.preemption.max_reserved_tokens = 1
    driver.submit(words(1), 100)
    while not driver.engine.statistics().decoding:
        driver.step()
    two = GenerationParameters(temperature=0.8, seed=7, n=2)
    driver.submit(words(2, 400), 20, two, client="that holds most")
    driver.step()
    other = Share(account)
    assert other.charge_running(other.available() or 0)
    while not driver.engine.statistics().admission.preempted:
        assert driver.engine.statistics().prefilling == 1
        driver.step()
    driver.engine.cancel("0")
    assert other.charge_running(other.available() or 0)
    driver.step()
    assert other.charge_running(0)
    assert other.charge_weights(11 * MEGABYTE // 2) is None
    driver.run()
    ends = [event for event in driver.events["1"] if isinstance(event, Finished)]
    assert sorted((end.index, end.reason) for end in ends) == [(0, "length"), (1, "length")]
    assert driver.engine.statistics().requests == 0


def test_a_request_that_leaves_while_it_waits_for_other_models_holds_up_none(tiny_model: TinyModel) -> None:
    account = MemoryAccount(kv_limit=4 * MEGABYTE)
    driver = Driver(tiny_model("qwen3"), account=account)
    other = Share(account)
    assert other.charge_running(4 * MEGABYTE)
    driver.submit(words(1), 20)
    driver.step()
    assert driver.engine.statistics().waiting == 1
    assert other.charge_running(0)
    driver.engine.cancel("0")
    driver.run()
    assert other.charge_running(4 * MEGABYTE, new=True)


@pytest.mark.soak
def test_what_is_cancelled_while_it_waits_leaves_nothing_behind(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver, account = tight(folder, 3)
    prompts = [words(seed) for seed in range(8)]
    for prompt in prompts:
        driver.submit(prompt, 60)
    with capture_logs() as logs:
        while driver.engine.statistics().waiting == 0 or not logs:
            driver.step()
    assert logs[-1]["event"] == "preempted"
    stopped = logs[-1]["request_id"]
    driver.engine.cancel(stopped)
    run(driver, account)
    last = driver.events[stopped][-1]
    assert isinstance(last, Finished)
    assert last.reason == "cancelled"
    for index, prompt in enumerate(prompts):
        if str(index) != stopped:
            assert driver.tokens[index] == expected(folder, prompt, 60)
    statistics = driver.engine.statistics()
    assert statistics.prefix_cache is not None
    assert (statistics.memory.running, statistics.memory.cached) == (0, statistics.prefix_cache.nbytes)


@pytest.mark.soak
def test_a_constrained_sequence_resumes_within_its_grammar(tiny_model: TinyModel, grammars: Grammars) -> None:
    def matcher() -> Any:
        return grammars.matcher(Constraint(RegexFormat("[a-f]{300,}")))

    folder = tiny_model("qwen3")
    free = Driver(folder)
    driver, account = tight(folder, 3)
    for engine in (free, driver):
        for seed in range(4):
            engine.submit(words(seed), 60)
        engine.submit(words(9), 60, matcher=matcher())
    free.run()
    run(driver, account)
    assert driver.engine.statistics().admission.preempted > 0
    assert driver.tokens == free.tokens


@pytest.mark.soak
def test_embeddings_are_computed_again_when_a_sequence_resumes(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    model, _ = loaded(folder)
    prompts = [words(seed) for seed in range(8)]
    driver, account = tight(folder, 3)
    import mlx.core as mx

    for prompt in prompts:
        driver.submit(prompt, 60, embeddings=model.model.embed_tokens(mx.array(prompt)))
    run(driver, account)
    assert driver.engine.statistics().admission.preempted > 0
    assert driver.tokens == [expected(folder, prompt, 60) for prompt in prompts]


@pytest.mark.soak
def test_sequences_that_cannot_share_a_batch_are_preempted_too(tiny_model: TinyModel) -> None:
    model, _ = loaded(tiny_model("qwen3"))
    outcomes = []
    for limit in (None, MEGABYTE * 3 // 4):
        account = MemoryAccount(kv_limit=limit)
        driver = Driver(tiny_model("qwen3"))
        driver.engine = TextEngine(QuantizedCacheModel(model), driver.output_processor, share=Share(account))
        driver.engine.admission.preemption.max_reserved_tokens = 1
        for seed in range(6):
            driver.submit(words(seed), 60)
        driver.run()
        outcomes.append((driver.tokens, driver.engine.statistics().admission.preempted > 0))
        assert limit is None or account.statistics().peak <= limit
    assert outcomes[0][0] == outcomes[1][0]
    assert [preempted for _, preempted in outcomes] == [False, True]


@pytest.mark.soak
def test_models_share_one_account(tiny_model: TinyModel) -> None:
    """Two engines step in turns: the idle one's cache is evicted, and the sequences of both end."""
    account = MemoryAccount(kv_limit=4 * MEGABYTE)
    folders = [tiny_model("qwen3"), tiny_model("llama")]
    drivers = [Driver(folder, prefix_cache=PrefixCache(64 * MEGABYTE), account=account) for folder in folders]
    drivers[0].submit(random.Random(1).choices(range(300, 2000), k=700), 5)
    run(drivers[0], account)
    assert account.statistics().cached > MEGABYTE
    drivers[0].engine.on_memory_wanted(drivers[0].engine.release_memory)
    for driver in drivers:
        driver.engine.admission.preemption.max_reserved_tokens = 1
        for seed in range(4):
            driver.submit(words(seed), 40)
    while any(driver.engine.has_work for driver in drivers):
        for driver in drivers:
            if driver.engine.has_work:
                driver.step()
            assert account.statistics().peak <= 4 * MEGABYTE
    for driver, folder, first in zip(drivers, folders, (1, 0), strict=True):
        answers = [expected(folder, words(seed), 40) for seed in range(4)]
        assert driver.tokens[first:] == answers

"""Tests of the prefix cache: shared prefixes are computed once, without a change in the answers."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from greenroom.engine.kv_cache import caches
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.prompt_features import PrefixKey
from greenroom.schemas.events.events import Finished, PromptProgress
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.engines.text_engines import Driver, expected, loaded, prefilled_cache
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.texts.prompts import TURN_END, ask, cached_tokens, turn_ends, words

KINDS = ("qwen3", *deep_only("gemma3", "lfm2"))
HYBRIDS = (*KINDS, *deep_only("qwen3_5"))
KEY = PrefixKey()


def driver(folder: Path, budget: int = 1 << 30) -> Driver:
    return Driver(folder, prefix_cache=PrefixCache(budget))


@pytest.mark.parametrize("kind", HYBRIDS)
def test_growing_conversation(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    engine = driver(folder)
    prompt = [*words(160, 1), TURN_END]
    for turn in range(6):
        prompt += [*words(40, 100 + turn), TURN_END, 300]
        answer, cached = ask(engine, prompt)
        assert answer == expected(folder, tuple(prompt), 12)
        assert cached >= (len(prompt) - 60 if turn else 0)
        prompt += [*answer, TURN_END]


@pytest.mark.parametrize("kind", KINDS)
def test_a_shared_prefix_is_computed_once(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    engine = driver(folder)
    system = [*words(270, 2), TURN_END]
    for user in range(3):
        prompt = system + words(50, 10 + user)
        answer, cached = ask(engine, prompt)
        assert answer == expected(folder, tuple(prompt), 12)
        assert cached == (len(system) if user else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_forks_are_found_without_checkpoints(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    engine = driver(folder)
    common = words(200, 3)
    cached = [ask(engine, common + words(50, 20 + user))[1] for user in range(3)]
    assert cached[2] == 200  # the second one showed where they part


@pytest.mark.deep
@pytest.mark.parametrize("kind", HYBRIDS)
def test_neighbours_that_share_a_prefix(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    engine = driver(folder)
    system = [*words(160, 4), TURN_END]
    ask(engine, system + words(40, 5))
    prompts = [system + words(20 + 9 * user, 30 + user) for user in range(4)] + [words(70, 50)]
    requests = [
        engine.submit(prompt, 20 + 3 * i, checkpoints=turn_ends(prompt)) for i, prompt in enumerate(prompts)
    ]
    engine.run()
    for i, (request, prompt) in enumerate(zip(requests, prompts, strict=True)):
        assert engine.tokens[int(request)] == expected(folder, tuple(prompt), 20 + 3 * i)
        assert cached_tokens(engine, request) == (len(system) if i < 4 else 0)
    for i, prompt in enumerate(prompts):
        again = [*prompt, *engine.tokens[int(requests[i])], *words(40, 90)]
        answer, cached = ask(engine, again)
        assert answer == expected(folder, tuple(again), 12)
        assert cached >= len(prompt) - 1


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_what_arrives_together_is_computed_once(tiny_model: TinyModel, kind: str) -> None:
    """One prompt leads, and the others continue where they diverge; nothing was cached before."""
    folder = tiny_model(kind)
    engine = driver(folder)
    system = words(600, 4)
    prompts = [system + words(20 + 9 * user, 30 + user) for user in range(5)]
    requests = [engine.submit(prompt, 8) for prompt in prompts[:3]]
    requests.append(engine.submit(words(300, 60), 8))  # another beginning: waits for nobody
    engine.step()
    requests += [engine.submit(prompt, 8) for prompt in prompts[3:]]  # while the first is under way
    engine.run()
    for request, prompt in zip(requests, [*prompts[:3], words(300, 60), *prompts[3:]], strict=True):
        assert engine.tokens[int(request)] == expected(folder, tuple(prompt), 8)
    assert sorted(cached_tokens(engine, request) for request in requests) == [0, 0, 600, 600, 600, 600]


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_waits_for_a_prompt_that_is_cancelled(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    engine = driver(folder)
    system = words(900, 4)
    first = engine.submit(system + words(20, 1), 8)
    second = engine.submit(system + words(20, 2), 8)
    engine.step()
    engine.engine.cancel(first)
    engine.run()
    assert engine.tokens[int(second)] == expected(folder, tuple(system + words(20, 2)), 8)


@pytest.mark.parametrize("n", [2, 3])
def test_choices_share_what_is_known(tiny_model: TinyModel, n: int) -> None:
    folder = tiny_model("gemma3")
    engine = driver(folder)
    system = [*words(300, 2), TURN_END]
    ask(engine, system + words(20, 1))
    prompt = system + words(40, 2)
    several = GenerationParameters(temperature=0.0, n=n)
    request = engine.submit(prompt, 50, several, checkpoints=turn_ends(prompt))
    engine.run()
    finished = [event for event in engine.events[request] if isinstance(event, Finished)]
    assert len(finished) == n
    assert finished[0].usage.cached == len(system)
    assert engine.tokens[-n:] == [expected(folder, tuple(prompt), 50)] * n
    longer = [*prompt, *engine.tokens[-1], *words(10, 3)]
    again = engine.submit(longer, 12)
    engine.run()
    assert engine.tokens[-1] == expected(folder, tuple(longer), 12)
    assert cached_tokens(engine, again) == len(prompt) + 49


@pytest.mark.parametrize("kind", KINDS)
def test_cancelled_answers_are_known(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    engine = driver(folder)
    first, second = words(100, 6), words(60, 7)
    requests = [engine.submit(prompt, 100) for prompt in (first, second)]
    while len(engine.tokens[0]) < 40:
        engine.step()
    for request in requests:
        engine.engine.cancel(request)
    engine.run()
    for index, prompt in enumerate((first, second)):
        again = [*prompt, *engine.tokens[index], *words(30, 8)]
        answer, cached = ask(engine, again)
        assert cached >= len(prompt) + len(engine.tokens[index]) - 1
        assert answer == expected(folder, tuple(again), 12)


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_budget_is_honoured(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    model, _ = loaded(folder)
    budget = 2 << 20
    cache = PrefixCache(budget)
    mx.clear_cache()
    before = mx.get_active_memory()
    for seed in range(24):
        prompt = words(60 + seed % 7 * 40, seed)
        cache.insert(KEY, prompt, prefilled_cache(folder, prompt), None)
        assert cache.memory.nbytes <= budget
    cache.insert(KEY, words(40, 999), caches.new_cache(model), None, min_tokens=1000)
    statistics = cache.statistics()
    assert statistics.evictions > 5
    assert mx.get_active_memory() - before <= budget * 1.02
    assert statistics.nbytes > budget // 2
    cache.memory.clear()
    assert cache.memory.nbytes == 0
    assert mx.get_active_memory() - before < 1 << 16


def test_a_prompt_larger_than_the_budget_changes_nothing_else(tiny_model: TinyModel) -> None:
    engine = driver(tiny_model("qwen3"), 1 << 18)
    answer, _ = ask(engine, words(400, 1))
    assert ask(engine, words(400, 1)) == (answer, 0)


@pytest.mark.deep
def test_shared_prefixes_outlive_their_ends(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    cache = PrefixCache(1 << 20)
    system = words(100, 1)
    for seed in range(30):
        prompt = system + words(100, 50 + seed)
        cache.insert(KEY, prompt, prefilled_cache(folder, prompt), None)
    assert cache.statistics().evictions > 0
    assert cache.match(KEY, [*system, 5], stateful=False).usable == 100


def test_models_and_adapters_share_nothing(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    cache = PrefixCache(1 << 24)
    cache.insert(KEY, words(100, 1), prefilled_cache(folder, words(100, 1)), None)
    assert cache.match(KEY, [*words(100, 1), 5], stateful=False).usable == 100
    assert cache.match(PrefixKey("lora"), [*words(100, 1), 5], stateful=False).usable == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_cached_never_changes(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    engine = driver(folder)
    prompt = [*words(260, 9), TURN_END]
    answers = [ask(engine, prompt, 30) for _ in range(4)]
    assert {tuple(answer) for answer, _ in answers} == {tuple(expected(folder, tuple(prompt), 30))}
    assert [cached for _, cached in answers[1:]] == [len(prompt) - 1] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_cached_system_prompt_nothing_is_computed(tiny_model: TinyModel, kind: str) -> None:
    engine = driver(tiny_model(kind))
    system = [*words(700, 1000), TURN_END]
    computed_tokens: list[int] = []
    for seed in (1, 2, 3):
        prompt = system + words(8, seed)
        request = engine.submit(prompt, 1, checkpoints=turn_ends(prompt))
        engine.run()
        progress = [event for event in engine.events[request] if isinstance(event, PromptProgress)]
        assert progress[-1].processed == progress[-1].total == len(prompt)
        computed_tokens.append(progress[-1].processed - progress[-1].cached)
    assert computed_tokens == [len(system) + 8, 8, 8]

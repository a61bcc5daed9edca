"""Tests that speculative decoding of a lone stream gives the same tokens as plain decoding."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx
import pytest

from greenroom.engine.kv_cache import caches
from greenroom.engine.text.drafters import PromptLookup
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.speculation import Speculation
from greenroom.schemas.events.events import Finished, TextDelta, TokenLogprob
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.tests.support.engines.text_engines import Driver, expected, loaded
from greenroom.tests.support.models.tiny_kinds import DEEPER

TinyModel = Callable[..., Path]
Prompt = tuple[int, ...]


def rarely(*cases: Any) -> list[Any]:
    """Mark cases for the long run only."""
    return [pytest.param(case, marks=pytest.mark.soak) for case in cases]


def lookup() -> Speculation:
    """Return prompt lookup on a clock where verification takes as long as a plain step."""
    ticks = itertools.count()
    return Speculation(PromptLookup(), clock=lambda: next(ticks) / 1000)


def finished(driver: Driver, request: str) -> Finished:
    last = driver.events[request][-1]
    assert isinstance(last, Finished)
    return last


def text_of(driver: Driver, request: str) -> str:
    return "".join(event.text for event in driver.events[request] if isinstance(event, TextDelta))


@functools.cache
def mlx_lms(folder: Path, prompt: tuple[int, ...], count: int) -> list[int]:
    """Return mlx-lm's greedy answer, with a logit bias."""
    from mlx_lm import stream_generate
    from mlx_lm.sample_utils import make_logits_processors

    model, adapter = loaded(folder)
    processors = make_logits_processors(logit_bias=dict(FEW.logit_bias))
    tokenizer = adapter.tokenizer.wrapped
    answers = stream_generate(model, tokenizer, list(prompt), max_tokens=count, logits_processors=processors)
    return [answer.token for answer in answers]


REPEATED = tuple(range(200, 230)) * 3
FEW = GenerationParameters(temperature=0.0, logit_bias=((100, 60.0), (107, 60.0), (114, 60.0)))
"""Three allowed tokens, so that the text repeats itself often, but not always."""
SAMPLED = attrs.evolve(FEW, temperature=0.8, top_p=0.9, seed=5)
PROMPT = tuple(range(100, 140))


@functools.cache
def alone(
    folder: Path, parameters: GenerationParameters = FEW, prompt: tuple[int, ...] = PROMPT
) -> list[int]:
    """Return the answer of 120 tokens without speculation."""
    driver = Driver(folder)
    driver.submit(prompt, 120, parameters)
    driver.run()
    return driver.tokens[0]


@pytest.mark.parametrize("kind", ["qwen3", *rarely("llama", "glm4")])
def test_greedy_answers_are_mlx_lms(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind, **DEEPER)
    driver = Driver(folder, speculation=lookup())
    request = driver.submit(PROMPT * 2, 100, FEW)
    driver.run()
    assert driver.tokens == [mlx_lms(folder, PROMPT * 2, 100)]
    usage = finished(driver, request).usage
    assert usage.generated == 100
    assert 20 < usage.accepted < min(100, usage.drafted)


@pytest.mark.deep
@pytest.mark.parametrize(
    "parameters",
    [
        SAMPLED,
        *rarely(
            attrs.evolve(SAMPLED, top_k=2, min_p=0.05, xtc_probability=0.5),
            attrs.evolve(SAMPLED, top_p=1.0, ignore_eos=True),
            attrs.evolve(FEW, min_tokens=60),
        ),
    ],
)
def test_sampled_answers_stay_the_same(tiny_model: TinyModel, parameters: GenerationParameters) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, speculation=lookup())
    request = driver.submit(PROMPT, 120, parameters)
    driver.run()
    assert driver.tokens == [alone(folder, parameters)]
    assert finished(driver, request).usage.accepted > 10


@pytest.mark.deep
def test_sequences_that_depend_on_every_token_decode_as_ever(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    parameters = attrs.evolve(FEW, frequency_penalty=0.5)
    driver = Driver(folder, speculation=lookup())
    request = driver.submit(PROMPT, 120, parameters)
    driver.run()
    assert driver.tokens == [alone(folder, parameters)]
    assert finished(driver, request).usage.drafted == 0


def test_logprobs_belong_to_the_tokens(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    parameters = attrs.evolve(SAMPLED, logprobs=True, top_logprobs=3)
    scores: list[list[TokenLogprob]] = []
    for speculation in (None, lookup()):
        driver = Driver(folder, speculation=speculation)
        request = driver.submit(PROMPT, 80, parameters)
        driver.run()
        deltas = [event for event in driver.events[request] if isinstance(event, TextDelta)]
        scores.append([score for delta in deltas for score in delta.logprobs])
    assert finished(driver, request).usage.accepted > 10
    assert [score.token for score in scores[0]] == [score.token for score in scores[1]]
    for one, other in zip(*scores, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-3)
        assert [value for _, value in one.top] == pytest.approx([value for _, value in other.top], abs=1e-3)


@pytest.mark.parametrize("count", [2, 42, 43, *rarely(1, 3, 40, 41, 44)])
def test_max_tokens_cuts_a_run_of_accepted_tokens(tiny_model: TinyModel, count: int) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, speculation=lookup())
    request = driver.submit(PROMPT * 2, count, FEW)
    driver.run()
    assert driver.tokens == [alone(folder, prompt=PROMPT * 2)[:count]]
    last = finished(driver, request)
    assert (last.reason, last.usage.generated) == ("length", count)


@pytest.mark.parametrize("earliest", [31, *rarely(*range(32, 38))])
def test_a_stop_token_ends_the_answer_wherever_it_stands_in_a_run(
    tiny_model: TinyModel, earliest: int
) -> None:
    folder = tiny_model("qwen3", **DEEPER)
    parameters = attrs.evolve(FEW, min_tokens=earliest)
    said = []
    for speculation in (None, lookup()):
        driver = Driver(folder, speculation=speculation)
        request = driver.submit(PROMPT, 120, parameters, stop_token_ids=frozenset({100}))
        driver.run()
        last = finished(driver, request)
        said.append((driver.tokens, last.reason, last.usage.generated))
    assert said[0] == said[1]
    assert last.reason == "stop"
    assert last.usage.accepted > 0


@pytest.mark.deep
@pytest.mark.parametrize("length", [33, *rarely(20, 47, 60)])
def test_a_stop_string_ends_the_answer_and_what_is_kept_is_right(tiny_model: TinyModel, length: int) -> None:
    folder = tiny_model("qwen3")
    plain = Driver(folder)
    request = plain.submit(PROMPT, 120, FEW)
    plain.run()
    text = text_of(plain, request)
    driver = Driver(folder, prefix_cache=PrefixCache(2**24), speculation=lookup())
    request = driver.submit(PROMPT, 120, FEW, stop=(text[length : length + 24],))
    driver.run()
    last = finished(driver, request)
    assert last.reason == "stop"
    assert text.startswith(text_of(driver, request))
    assert last.usage.accepted > 0
    said = (*PROMPT, *driver.tokens[0], 300, 301)
    again = driver.submit(said, 40)
    driver.run()
    assert finished(driver, again).usage.cached >= len(PROMPT) + len(driver.tokens[0]) - 1
    assert driver.tokens[1] == expected(folder, said, 40)


@pytest.mark.deep
def test_a_conversation_goes_on_from_what_an_answer_left(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, prefix_cache=PrefixCache(2**24), speculation=lookup())
    said = PROMPT
    for turn, count in enumerate((50, 33, 41)):
        request = driver.submit(said, count, FEW)
        driver.run()
        usage = finished(driver, request).usage
        assert usage.accepted > 0
        assert driver.tokens[turn] == mlx_lms(folder, said, count)
        if turn:
            assert usage.cached >= len(said) - 5
        said = (*said, *driver.tokens[turn], 300 + turn, 301, 302)


@pytest.mark.parametrize("at", [22, *rarely(20, 21, 23, 24, 25)])
@pytest.mark.deep
def test_a_newcomer_ends_speculation_at_once(tiny_model: TinyModel, at: int) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, speculation=lookup())
    first = driver.submit(PROMPT, 120, SAMPLED)
    for _ in range(at):
        driver.step()
    driver.submit(tuple(range(300, 340)), 30)
    driver.step()
    driver.step()
    before = driver.engine.statistics()
    while (statistics := driver.engine.statistics()).requests == 2:
        assert statistics.speculation == before.speculation
        driver.step()
    driver.run()
    assert driver.tokens == [alone(folder, SAMPLED), expected(folder, tuple(range(300, 340)), 30)]
    assert finished(driver, first).usage.accepted > 10


@pytest.mark.deep
@pytest.mark.parametrize("at", [22, *rarely(20, 21, 23, 24)])
def test_a_cancelled_sequence_leaves_others_and_the_cache_alone(tiny_model: TinyModel, at: int) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, prefix_cache=PrefixCache(2**24), speculation=lookup())
    request = driver.submit(PROMPT, 120, FEW)
    for _ in range(at):
        driver.step()
    driver.engine.cancel(request)
    driver.run()
    assert finished(driver, request).reason == "cancelled"
    assert driver.tokens[0] == alone(folder)[: len(driver.tokens[0])]
    said = (*PROMPT, *driver.tokens[0], 300)
    driver.submit(said, 40)
    driver.run()
    assert driver.tokens[1] == expected(folder, said, 40)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["gemma3", *rarely("lfm2")])
def test_caches_that_cannot_be_trimmed_decode_as_ever(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    driver = Driver(folder, speculation=lookup())
    request = driver.submit(REPEATED, 60, FEW)
    driver.run()
    assert driver.tokens == [mlx_lms(folder, REPEATED, 60)]
    assert finished(driver, request).usage.drafted == 0


@pytest.mark.deep
def test_quantized_caches_trim_rejected_drafts(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    said = []
    for speculation in (None, lookup()):
        driver = Driver(folder, kv_bits=8, speculation=speculation)
        request = driver.submit(PROMPT, 120, FEW)
        driver.run()
        said.append(driver.tokens)
    assert said[0] == said[1]
    usage = finished(driver, request).usage
    assert 20 < usage.accepted < usage.drafted


def test_tokens_of_a_pass_are_sampled_from_the_logits_of_single_steps(tiny_model: TinyModel) -> None:
    """Speculation relies on this: one pass over several tokens gives the same logits as single steps."""
    model, _ = loaded(tiny_model("qwen3"))
    tokens = mx.array([list(range(200, 209))])
    one, many = caches.new_cache(model), caches.new_cache(model)
    single = mx.concatenate([model(tokens[:, i : i + 1], cache=one) for i in range(9)], axis=1)
    assert mx.allclose(single, model(tokens, cache=many), atol=1e-3, rtol=1e-4)

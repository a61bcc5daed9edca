"""Tests of parallel samples: one prefill, and each answer equals a single request's with its seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.engine.grammar.compiler import GrammarCompiler
from greenroom.engine.grammar.grammar_tokenizer import GrammarTokenizer
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.scheduler import running_batches
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.schemas.events.events import Finished
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.messages.requests import Constraint, RegexFormat
from greenroom.tests.support.engines.logprobs import plain_logprobs, scores_of
from greenroom.tests.support.engines.text_engines import GREEDY, Driver, loaded
from greenroom.tests.support.texts.prompts import words

TinyModel = Callable[..., Path]
PROMPT = tuple(range(100, 140))
OTHER = tuple(range(500, 520))


@pytest.mark.parametrize("kind", ["qwen3", "gemma3"])
def test_choices_share_a_prompt_and_go_their_own_ways(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    driver = Driver(folder, PrefillPolicy())
    driver.submit(OTHER, 40, GREEDY)
    driver.step()
    several = GenerationParameters(seed=5, n=4, logprobs=True, top_logprobs=1)
    driver.submit(PROMPT, 20, several)
    driver.submit(PROMPT, 20, GenerationParameters(seed=5))
    driver.submit(PROMPT, 20, GenerationParameters(temperature=0.0, n=2))
    driver.run()
    _, first, *others, alone, greedy, other_greedy = driver.tokens
    assert first == alone
    assert len({tuple(tokens) for tokens in (first, *others)}) == 4
    assert greedy == other_greedy
    events = driver.events["1"]
    ends = [event for event in events if isinstance(event, Finished)]
    assert sorted(end.index for end in ends) == [0, 1, 2, 3]
    assert all(min(attrs.astuple(end.timing)) >= 0 for end in ends)
    name = loaded(folder)[1].token
    for index, tokens in enumerate((first, *others)):
        scores = scores_of(events, index)
        assert [score.token for score in scores] == [name(token) for token in tokens]
        expected = plain_logprobs(folder, PROMPT, tokens)
        for row, token, score in zip(expected, tokens, scores, strict=True):
            assert abs(score.logprob - row[token]) < 1e-3
    assert driver.engine.statistics().requests == 0


def test_all_choices_are_cancelled_together(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"))
    driver.submit(PROMPT, 50, GenerationParameters(n=3))
    driver.submit(OTHER, 20, GREEDY)
    for _ in range(8):
        driver.step()
    driver.engine.cancel("0")
    driver.run()
    ends = [event for event in driver.events["0"] if isinstance(event, Finished)]
    assert [(end.index, end.reason) for end in ends] == [(0, "cancelled"), (1, "cancelled"), (2, "cancelled")]
    assert len(driver.tokens[3]) == 20


def alone(folder: Path, index: int, parameters: GenerationParameters, matcher: Any = None) -> Driver:
    """Return a single request with the seed of another choice."""
    driver = Driver(folder)
    seed: Any = f"{parameters.seed}/{index}" if index else parameters.seed  # what `fold_seed` makes of both
    driver.submit(PROMPT, 16, attrs.evolve(parameters, n=1, seed=seed), matcher=matcher)
    driver.run()
    return driver


CORNERS: list[dict[str, Any]] = [
    {"logprobs": True, "top_logprobs": 3},
    {"repetition_penalty": 1.4, "presence_penalty": 0.8, "frequency_penalty": 0.6},
    {"temperature": 0.7, "top_p": 0.3},
]


@pytest.mark.parametrize("kind", ["qwen3", "llama4"])
@pytest.mark.parametrize("settings", CORNERS, ids=lambda settings: ",".join(settings))
def test_each_choice_is_what_its_seed_alone_samples(
    tiny_model: TinyModel, kind: str, settings: dict[str, Any]
) -> None:
    """Includes caches that cannot be merged, whose choices decode in batches of their own (llama4)."""
    folder = tiny_model(kind)
    parameters = GenerationParameters(seed=9, n=3, **settings)
    driver = Driver(folder)
    driver.submit(OTHER, 20, GREEDY)
    driver.step()
    driver.submit(PROMPT, 16, parameters)
    driver.run()
    assert len({tuple(tokens) for tokens in driver.tokens}) == 4
    for index, tokens in enumerate(driver.tokens[1:]):
        single = alone(folder, index, parameters)
        assert tokens == single.tokens[0]
        scores = scores_of(driver.events["1"], index)
        wanted = scores_of(single.events["0"])
        assert [score.token for score in scores] == [score.token for score in wanted]
        assert [score.logprob for score in scores] == pytest.approx(
            [score.logprob for score in wanted], abs=1e-3
        )
        assert bool(scores) == bool(settings.get("logprobs"))


@pytest.mark.parametrize("kind", ["qwen3", "llama4"])
def test_each_choice_under_a_constraint_is_what_its_seed_alone_samples(
    tiny_model: TinyModel, kind: str
) -> None:
    folder = tiny_model(kind)
    adapter = loaded(folder)[1]
    compiler = GrammarCompiler(GrammarTokenizer(adapter.tokenizer.wrapped, adapter.stop_token_ids))
    constraint = Constraint(RegexFormat("[a-z]{3,12}( [0-9]{2,7}){1,4}"))
    parameters = GenerationParameters(seed=9, n=3, repetition_penalty=1.2)
    driver = Driver(folder)
    driver.submit(OTHER, 20, GREEDY)
    driver.step()
    driver.submit(PROMPT, 16, parameters, matcher=compiler.compile(constraint))
    driver.run()
    assert len({tuple(tokens) for tokens in driver.tokens}) == 4
    for index, tokens in enumerate(driver.tokens[1:]):
        assert tokens == alone(folder, index, parameters, compiler.compile(constraint)).tokens[0]


def test_choices_of_a_prompt_that_takes_long_to_copy_begin_with_the_cached_one(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cached prompt is copied in parts, one per step, instead of once per choice in one step."""
    monkeypatch.setattr(running_batches, "MAX_COPY_MS", 0.0)
    monkeypatch.setattr(running_batches, "MAX_COPY_PASSES", 0.0)
    folder = tiny_model("qwen3")
    prompt = tuple(words(400, 1))
    several = GenerationParameters(seed=5, n=3)
    driver = Driver(folder, prefix_cache=PrefixCache(1 << 30))
    driver.submit(prompt, 12, several)
    shapes = set()
    while driver.engine.has_work:
        driver.step()
        shapes |= {rows for rows, _ in driver.engine.statistics().batches}
    assert shapes == {1}
    assert driver.engine.statistics().admission.preempted == 0
    cached = driver.engine.statistics().prefix_cache
    assert cached is not None
    assert cached.hits == 2
    together = Driver(folder)
    monkeypatch.undo()
    together.submit(prompt, 12, several)
    together.run()
    assert driver.tokens == together.tokens

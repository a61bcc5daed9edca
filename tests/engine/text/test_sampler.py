"""Tests of log-probabilities, seeds and penalties against a plain forward pass, in any batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx
import numpy as np
import pytest

from greenroom.engine.text.sampler import Sampler
from greenroom.engine.text.sampling_parameters import SamplingParameters
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.tokenizer.detokenizer import TokenNames, byte_alphabet
from greenroom.schemas.events.events import Finished, TextDelta
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.tests.support.engines.logprobs import plain_logprobs, scores_of
from greenroom.tests.support.engines.text_engines import GREEDY, Driver, loaded
from greenroom.tests.support.models.tiny_kinds import DEEPER

TinyModel = Callable[..., Path]
PROMPT = tuple(range(100, 140))
OTHER = tuple(range(500, 520))
SCORED = GenerationParameters(temperature=0.0, logprobs=True, top_logprobs=5)

MIXED: list[dict[str, Any]] = [
    {"temperature": 0.7},
    {"temperature": 0.8, "top_p": 0.9},
    {"top_k": 40},
    {"temperature": 0.9, "min_p": 0.05},
    {"temperature": 1.2, "top_p": 0.95, "top_k": 50},
    {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
    {},
    {"temperature": 0.0, "repetition_penalty": 1.3},
    {"repetition_penalty": 1.1},
    {"temperature": 0.9, "presence_penalty": 0.5},
    {"temperature": 0.8, "frequency_penalty": 0.3},
    {"top_p": 0.8, "presence_penalty": 1.0, "frequency_penalty": 0.2},
    {"temperature": 0.5, "logit_bias": ((300, 5.0), (301, -100.0))},
    {"xtc_probability": 0.5, "xtc_threshold": 0.02},
    {"temperature": 1.5, "min_p": 0.1, "top_p": 0.99},
    {"temperature": 0.3, "top_p": 0.5, "repetition_penalty": 1.2, "min_tokens": 9},
]


def check_scores(folder: Path, prompt: Sequence[int], driver: Driver, request: int, top: int) -> None:
    tokens, scores = driver.tokens[request], scores_of(driver.events[str(request)])
    expected = plain_logprobs(folder, prompt, tokens)
    name = loaded(folder)[1].token
    assert [score.token for score in scores] == [name(token) for token in tokens]
    for row, token, score in zip(expected, tokens, scores, strict=True):
        assert abs(score.logprob - row[token]) < 1e-3
        best = np.argsort(-row)[:top]
        assert [value for _, value in score.top] == pytest.approx(row[best].tolist(), abs=1e-3)
        assert {shown for shown, _ in score.top} == {name(int(token)) for token in best}


@pytest.mark.parametrize("kind", ["qwen3", "gemma3"])
def test_log_probabilities_equal_a_plain_forward_pass(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    driver = Driver(folder)
    driver.submit(PROMPT, 25, SCORED)
    driver.submit(OTHER, 30, GREEDY)
    for _ in range(6):
        driver.step()
    driver.submit(OTHER, 20, GenerationParameters(temperature=1.5, seed=3, logprobs=True, top_logprobs=2))
    driver.submit(PROMPT, 20, GenerationParameters(top_k=3, seed=4, logprobs=True))
    driver.run()
    check_scores(folder, PROMPT, driver, 0, 5)
    assert scores_of(driver.events["1"]) == []
    check_scores(folder, OTHER, driver, 2, 2)
    check_scores(folder, PROMPT, driver, 3, 0)


def test_log_probabilities_are_the_models_own_whatever_is_sampled(tiny_model: TinyModel) -> None:
    folder = tiny_model("llama")
    driver = Driver(folder)
    settings: Any = {
        "temperature": 0.4,
        "logit_bias": ((600, 50.0),),
        "presence_penalty": 2.0,
        "logprobs": True,
    }
    driver.submit(PROMPT, 15, GenerationParameters(**settings, top_logprobs=3, seed=1))
    driver.run()
    assert driver.tokens[0].count(600) > 3
    check_scores(folder, PROMPT, driver, 0, 3)


@pytest.mark.deep
def test_a_prompt_in_a_batch_of_sixteen_settings_gets_the_tokens_it_gets_alone(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    prompts = [tuple(range(100 + 9 * i, 120 + 11 * i)) for i in range(16)]
    rows = [
        GenerationParameters(**setting, seed=40 + i, logprobs=True, top_logprobs=5)
        for i, setting in enumerate(MIXED)
    ]
    together = Driver(folder, PrefillPolicy())
    for prompt, parameters in zip(prompts, rows, strict=True):
        together.submit(prompt, 40, parameters)
        together.step()
    together.run()
    for i, (prompt, parameters) in enumerate(zip(prompts, rows, strict=True)):
        alone = Driver(folder)
        alone.submit(prompt, 40, parameters)
        alone.run()
        assert together.tokens[i] == alone.tokens[0], MIXED[i]
        assert len(alone.tokens[0]) == 40
        check_scores(folder, prompt, together, i, 5)


def test_another_seed_samples_something_else_and_none_is_new_every_time(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("qwen3"))
    for seed in (1, 1, 2, -1, 2**70, None, None):
        driver.submit(PROMPT, 20, GenerationParameters(seed=seed))
    driver.run()
    sampled = [tuple(tokens) for tokens in driver.tokens]
    assert sampled[0] == sampled[1]
    assert len(set(sampled)) == 6


def adjusted(logits: Any, parameters: GenerationParameters, prompt: Sequence[int], answer: list[int]) -> Any:
    """Apply penalties and biases by their definitions, one token at a time."""
    logits = logits.copy()
    penalty = parameters.repetition_penalty
    for token in {*prompt, *answer}:
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    for token in set(answer):
        logits[token] -= parameters.presence_penalty + parameters.frequency_penalty * answer.count(token)
    for token, bias in parameters.logit_bias:
        logits[token] += bias
    return logits


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.5},
        {"repetition_penalty": 0.6},
        {"presence_penalty": 2.0},
        {"frequency_penalty": -0.7},
        {"presence_penalty": -0.5, "frequency_penalty": 1.0, "repetition_penalty": 1.2},
        {"logit_bias": ((300, 9.0), (301, 8.0)), "frequency_penalty": 0.9},
    ],
    ids=str,
)
def test_penalties_and_biases_are_what_their_definitions_say(
    tiny_model: TinyModel, settings: dict[str, Any]
) -> None:
    """Compares greedy rows, one of which joins later, with a plain loop."""
    folder = tiny_model("qwen3", **DEEPER)
    model, _ = loaded(folder)
    parameters = GenerationParameters(temperature=0.0, **settings)
    driver = Driver(folder)
    driver.submit(PROMPT, 30, parameters)
    for _ in range(8):
        driver.step()
    driver.submit(OTHER, 30, parameters)
    driver.submit(OTHER, 30, GREEDY)
    driver.run()
    for prompt, tokens in zip((PROMPT, OTHER), driver.tokens, strict=False):
        logits = np.array(model(mx.array([[*prompt, *tokens]]))[0].astype(mx.float32))
        for at, token in enumerate(tokens):
            expected = adjusted(logits[len(prompt) - 1 + at], parameters, prompt, tokens[:at])
            assert expected[token] > expected.max() - 1e-4
    assert driver.tokens[1] != driver.tokens[2]


@attrs.frozen
class History:
    prompt: tuple[int, ...]
    answer: tuple[int, ...] = ()


def test_a_token_of_the_prompt_beyond_the_logits_weakens_nothing() -> None:
    """Such as that of an image, whose row of numbers ends where the next one's begins."""
    rows = [SamplingParameters(repetition_penalty=2.0)] * 2
    sampler = Sampler(rows, [0, 0], [History((3, 2)), History(())])
    assert sampler(mx.array([[1.0, 2.0, 3.0], [3.0, 2.9, 0.0]])).tolist() == [1, 0]


def test_no_end_before_min_tokens_and_none_at_all_if_it_is_ignored(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    end = 350
    eager = {"temperature": 0.0, "logit_bias": ((end, 100.0),)}
    driver = Driver(folder)
    for more in ({}, {"min_tokens": 1}, {"min_tokens": 7}, {"ignore_eos": True}):
        driver.submit(PROMPT, 12, GenerationParameters(**eager, **more), stop_token_ids=frozenset({end, 351}))  # type: ignore[arg-type]
    driver.run()
    lasts = [events[-1] for events in driver.events.values()]
    assert [(last.reason, last.usage.generated) for last in lasts if isinstance(last, Finished)] == [
        ("stop", 1),
        ("stop", 2),
        ("stop", 8),
        ("length", 12),
    ]
    assert all(end not in tokens for tokens in driver.tokens)
    assert driver.tokens[2] == driver.tokens[3][:7]


def test_scores_of_what_a_stop_string_swallows_are_not_emitted(tiny_model: TinyModel) -> None:
    folder = tiny_model("llama")
    driver = Driver(folder)
    driver.submit(PROMPT, 40, SCORED)
    driver.run()
    text = "".join(event.text for event in driver.events["0"] if isinstance(event, TextDelta))
    driver.submit(PROMPT, 40, SCORED, stop=(text[30:37],))
    driver.run()
    shown = "".join(event.text for event in driver.events["1"] if isinstance(event, TextDelta))
    assert shown == text[:30]
    whole, cut = (scores_of(driver.events[request]) for request in ("0", "1"))
    assert whole[: len(cut)] == cut
    assert len(b"".join(score.token.bytes for score in cut[:-1])) < len(text[:31].encode())


def test_tokens_spell_the_text(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    tokenizer = loaded(folder)[1].tokenizer
    names = TokenNames(tokenizer.wrapped)
    text = "Über 日本 <|im_end|> \t\n ok"
    tokens = list(chain.from_iterable(tokenizer.encode_rendered(text)))
    assert b"".join(names.look_up(token).bytes for token in tokens).decode() == text
    assert names.look_up(10**6).bytes == b""
    assert sorted(byte_alphabet().values()) == list(range(256))
    assert len({*byte_alphabet()}) == 256


def test_the_likeliest_fall(tiny_model: TinyModel) -> None:
    driver = Driver(tiny_model("mistral"))
    driver.submit(PROMPT, 10, GenerationParameters(temperature=0.0, logprobs=True, top_logprobs=20))
    driver.run()
    scores = scores_of(driver.events["0"])
    assert len(scores) == 10
    for score in scores:
        assert len(score.top) == 20
        assert all(one[1] >= other[1] for one, other in pairwise(score.top))
        assert score.top[0] == (score.token, score.logprob)
        assert sum(math.exp(value) for _, value in score.top) <= 1 + 1e-4


def test_any_number_of_log_probabilities_in_a_mixed_batch(tiny_model: TinyModel) -> None:
    """Covers requests for no alternatives and for the maximum, beside rows without log-probabilities."""
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    tops = {0: 0, 3: 20, 5: 0, 6: 20, 9: 5}
    for index, settings in enumerate(MIXED[:10]):
        wanted: dict[str, Any] = {"logprobs": True, "top_logprobs": tops[index]} if index in tops else {}
        driver.submit(PROMPT, 12 + index, GenerationParameters(seed=index, **settings, **wanted))
    driver.run()
    for index in range(10):
        if index in tops:
            check_scores(folder, PROMPT, driver, index, tops[index])
        else:
            assert not scores_of(driver.events[str(index)])

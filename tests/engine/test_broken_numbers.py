"""Tests that a row with non-finite logits fails with a clear error, and others in its batch continue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.text.drafters import PromptLookup
from greenroom.engine.text.sampling_parameters import mark_broken, split_marks
from greenroom.engine.text.speculation import Speculation
from greenroom.schemas.events.events import Failed, TextDelta
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.tests.support.engines import text_engines
from greenroom.tests.support.engines.text_engines import Driver, expected
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.texts.prompts import words

WIDTH = 64
"""Embedding dimension of the tiny models."""


def assert_broken(driver: Driver, request: str) -> None:
    *before, last = driver.events[request]
    assert isinstance(last, Failed)
    assert (last.problem.status, last.problem.code) == (503, "model_broken")
    assert not any(isinstance(event, TextDelta) for event in before)


@pytest.mark.parametrize(
    "parameters",
    [
        GenerationParameters(temperature=0),
        GenerationParameters(temperature=1, seed=1),
        GenerationParameters(temperature=1, top_k=20, seed=1),
        GenerationParameters(temperature=1, top_p=0.9, seed=1),
        GenerationParameters(temperature=0, frequency_penalty=1),
        GenerationParameters(temperature=0, logprobs=True, top_logprobs=3),
    ],
    ids=["greedy", "all", "top_k", "top_p", "penalty", "logprobs"],
)
def test_a_row_without_numbers_fails_alone(tiny_model: TinyModel, parameters: GenerationParameters) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    beside = driver.submit(words(20, 2), 30)
    for _ in range(3):
        driver.step()
    broken = driver.submit(words(20, 3), 5, parameters, embeddings=mx.full((20, WIDTH), mx.nan))
    driver.run()
    assert_broken(driver, broken)
    assert driver.tokens[int(beside)] == expected(folder, tuple(words(20, 2)), 30)
    assert driver.engine.statistics().requests == 0


class BrokenOverDrafts:
    """A model whose logits are not finite in a pass over several answer tokens, as in draft verification."""

    def __init__(self, model: Any, prompt: int) -> None:
        self._model, self._prompt = model, prompt
        self.layers = model.layers
        self.verified = 0

    def __call__(self, tokens: mx.array, **options: Any) -> mx.array:
        logits: mx.array = self._model(tokens, **options)
        if 1 < tokens.shape[1] < self._prompt - 1:
            self.verified += 1
            logits = logits * mx.nan
        return logits


def test_drafts_that_are_verified_without_numbers_fail(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model("qwen3")
    prompt = words(30, 2) * 3
    model = BrokenOverDrafts(text_engines.loaded(folder)[0], len(prompt))
    monkeypatch.setattr(text_engines, "quantized", lambda *_: model)
    driver = Driver(folder, speculation=Speculation(PromptLookup()))
    request = driver.submit(prompt, 60)
    driver.run()
    last = driver.events[request][-1]
    assert model.verified
    assert isinstance(last, Failed)
    assert last.problem.code == "model_broken"


def test_marks_tell_rows_without_numbers_apart() -> None:
    logits = mx.array([[1.0, 2.0, -mx.inf], [1.0, mx.nan, 3.0], [mx.inf, 1.0, 2.0], [-mx.inf] * 3])
    marked = mark_broken(mx.array([1, 2, 0, 0], dtype=mx.uint32), logits)
    assert marked.dtype == mx.uint32
    marks: Any = marked.tolist()
    assert split_marks(marks) == ([1, 2, 0, 0], frozenset({1, 2, 3}))
    assert split_marks([5, 7]) == ([5, 7], frozenset())


def test_a_whole_model_without_numbers_answers_nothing(tiny_model: TinyModel, tmp_path: Path) -> None:
    from greenroom.tests.support.hostile.model_folders import make_hostile

    folder = make_hostile("no numbers", tiny_model("qwen3"), tmp_path / "broken")
    driver = Driver(folder)
    requests = [driver.submit(words(20, seed), 30) for seed in range(3)]
    driver.run()
    for request in requests:
        assert_broken(driver, request)

"""Tests of the settings that limit the prefix cache in memory and on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.text.text_engine import TextEngine
from greenroom.schemas.messages.prepared_input import PreparedPrompt
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.text_engines import GREEDY, finished, opened
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.texts.prompts import words

PROMPTS = tuple(tuple(words(100, seed)) for seed in range(12))
BYTES_PER_TOKEN = 4 * 2 * 2 * 32 * 4
"""Product of layers, keys and values, heads, dimensions and bytes per number of the tiny qwen3."""


def open_engine(folder: Path, **settings: Any) -> TextEngine:
    return opened(folder, Settings(**settings))


def cached_tokens(engine: TextEngine, prompt: Sequence[int]) -> int:
    """Answer a prompt with one token; return the number of its cached tokens."""
    request = InferenceRequest("r", ModelKey("tiny"), RawInput(tuple(prompt)))
    prepared = PreparedPrompt(
        tuple(prompt), frozenset(), max_tokens=1, parameters=GREEDY, stop=(), parse=False
    )
    engine.submit(request, prepared)
    events = []
    while engine.has_work:
        events += [event for _, event in engine.step()]
    return finished(events).usage.cached


def test_a_prefix_cache_of_no_bytes_is_off(tiny_model: TinyModel) -> None:
    cached = {}
    for nbytes in (0, 1 << 24):
        engine = open_engine(tiny_model("qwen3"), prefix_cache_bytes=nbytes)
        cached[nbytes] = [cached_tokens(engine, PROMPTS[0]) for _ in range(2)]
        assert (engine.statistics().prefix_cache is None) is (nbytes == 0)
        engine.close()
    assert cached == {0: [0, 0], 1 << 24: [0, 99]}


def test_the_prefix_cache_keeps_within_its_bytes_what_was_used_last(tiny_model: TinyModel) -> None:
    bound = 500 * BYTES_PER_TOKEN
    cached = {}
    for nbytes in (bound, 1 << 30):
        engine = open_engine(tiny_model("qwen3"), prefix_cache_bytes=nbytes)
        for prompt in PROMPTS:
            cached_tokens(engine, prompt)
            statistics = engine.statistics().prefix_cache
            assert statistics is not None
            assert statistics.nbytes <= nbytes
        cached[nbytes] = [cached_tokens(engine, PROMPTS[index]) for index in (-1, 0)]
        engine.close()
    assert cached == {bound: [99, 0], 1 << 30: [99, 99]}


def test_computed_prompts_leave_prefix_cache_disk_free_bytes_of_the_disk(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    # No disk has so much free.
    for free, kept in ((0, True), (1 << 60, False)):
        engine = open_engine(
            tiny_model("qwen3"), prefix_cache_dir=str(tmp_path), prefix_cache_disk_free_bytes=free
        )
        for prompt in PROMPTS[:4]:
            cached_tokens(engine, prompt)
        engine.close()
        assert any(path.is_file() for path in tmp_path.rglob("*")) == kept


@pytest.mark.parametrize("nbytes", [1_000_000, 2_000_000])
def test_computed_prompts_take_no_more_disk_than_prefix_cache_disk_bytes(
    tiny_model: TinyModel, tmp_path: Path, nbytes: int
) -> None:
    engine = open_engine(tiny_model("qwen3"), prefix_cache_dir=str(tmp_path), prefix_cache_disk_bytes=nbytes)
    for prompt in PROMPTS:
        cached_tokens(engine, prompt)
    engine.close()
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert nbytes / 2 < size <= nbytes < len(PROMPTS) * len(PROMPTS[0]) * BYTES_PER_TOKEN

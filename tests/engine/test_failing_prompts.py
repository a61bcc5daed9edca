"""Tests that a prompt that cannot be computed fails by itself, while other requests continue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import pytest

from greenroom.engine.kv_cache import caches
from greenroom.engine.text.batch_cache import PrefilledSequences
from greenroom.engine.text.prefix_cache.disk_files import read_block, read_tensors, write_block
from greenroom.engine.text.prefix_cache.disk_tier import DiskTier
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.prompt_features import PrefixKey
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy, PrefillRequest
from greenroom.engine.text.scheduler.prefill_runner import PrefillRunner
from greenroom.schemas.events.events import Failed
from greenroom.tests.support.engines.text_engines import Driver, expected, prefilled_cache
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.texts.prompts import ask, cached_tokens, words

FINGERPRINT = "0123456789abcdef" * 2
GENEROUS = 1 << 30
KEY = PrefixKey()
PROMPT = words(300, 1)


def failure(driver: Driver, request: str) -> str:
    """Return the error detail of a failed request."""
    last = driver.events[request][-1]
    assert isinstance(last, Failed)
    assert last.problem.status == 500
    return last.problem.detail


def wrong_cache(folder: Path) -> caches.Cache:
    """Return a cache that holds PROMPT, but with a wrong number of heads."""
    cache = prefilled_cache(folder, PROMPT)
    for layer in cache:
        layer.keys, layer.values = (
            mx.concatenate([each, each], axis=1) for each in (layer.keys, layer.values)
        )
    return cache


def test_a_prompt_that_the_model_cannot_compute_fails_alone(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    beside = driver.submit(words(20, 2), 30)
    driver.step()
    bad = driver.submit(words(20, 3), 5, embeddings=mx.zeros((20, 7)))
    driver.run()
    assert "computation failed" in failure(driver, bad)
    assert driver.tokens[int(beside)] == expected(folder, tuple(words(20, 2)), 30)
    assert driver.engine.statistics().requests == 0


@pytest.mark.deep
def test_of_prompts_that_are_computed_together_one_fails(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The faulty prompt is found by computing each by itself."""
    folder = tiny_model("qwen3")
    cache = PrefixCache(GENEROUS)
    assert cache.insert(KEY, PROMPT, wrong_cache(folder), None)
    together: list[int] = []
    compute_together = PrefillRunner.compute_together

    def counted(self: PrefillRunner, requests: Sequence[PrefillRequest]) -> PrefilledSequences:
        together.append(len(requests))
        return compute_together(self, requests)

    monkeypatch.setattr(PrefillRunner, "compute_together", counted)
    driver = Driver(folder, PrefillPolicy(idle_ms=1e9), cache)
    bad = driver.submit([*PROMPT, *words(60, 7)], 8)
    good = [driver.submit(words(60, seed), 8) for seed in (5, 6)]
    driver.run()
    assert "computation failed" in failure(driver, bad)
    assert 3 in together
    for request, seed in zip(good, (5, 6), strict=True):
        assert driver.tokens[int(request)] == expected(folder, tuple(words(60, seed)), 8)


def test_who_finds_a_damaged_file_computes_his_prompt(tiny_model: TinyModel, tmp_path: Path) -> None:
    """The checksum of the file is right, but a layer is missing."""
    folder = tiny_model("qwen3")
    writer = Driver(folder, prefix_cache=PrefixCache(GENEROUS, DiskTier(tmp_path, FINGERPRINT, GENEROUS)))
    ask(writer, [*PROMPT, *words(40, 2)], 1)
    writer.engine.close()
    files = list(tmp_path.rglob("*.safetensors"))
    assert files
    for file in files:
        block, tensors = read_block(file, FINGERPRINT), read_tensors(file, FINGERPRINT)
        file.unlink()
        write_block(file, block, FINGERPRINT, tensors[:-2])
    driver = Driver(folder, prefix_cache=PrefixCache(GENEROUS, DiskTier(tmp_path, FINGERPRINT, GENEROUS)))
    beside = driver.submit(words(20, 2), 30)
    driver.step()
    prompt = [*PROMPT, *words(30, 3)]
    request = driver.submit(prompt, 8)
    driver.run()
    assert driver.tokens[int(request)] == expected(folder, tuple(prompt), 8)
    assert cached_tokens(driver, request) == 0
    assert driver.tokens[int(beside)] == expected(folder, tuple(words(20, 2)), 30)
    driver.engine.close()

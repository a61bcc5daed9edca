"""Tests of cache growth: a large cache grows in parts ahead of need, so no step copies all of it."""

from __future__ import annotations

import pytest

from greenroom.engine.kv_cache import caches
from greenroom.engine.text import batch_cache, kv_memory
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.engines.text_engines import Driver, expected
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.texts.prompts import words


def capacities(driver: Driver) -> list[int]:
    """Return the token capacity of each layer of the only batch."""
    (running,) = driver.engine._batches
    layers = caches.flat_layers(running._cache.layers)
    return [layer.keys.shape[2] if layer.keys is not None else 0 for layer in layers]


@pytest.mark.parametrize("rows", [1, *deep_only(3)])
def test_at_most_one_layer_grows_at_a_step(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(batch_cache, "LARGE_BYTES", 0)
    folder = tiny_model("qwen3")
    driver = Driver(folder)
    prompts = [tuple(words(150, seed)) for seed in range(rows)]
    for prompt in prompts:
        driver.submit(prompt, 140)
    while not all(len(tokens) > 5 for tokens in driver.tokens):
        driver.step()
    grown: list[int] = []
    before = capacities(driver)
    while min(map(len, driver.tokens)) < 120:
        driver.step()
        after = capacities(driver)
        grown.append(sum(one != other for one, other in zip(before, after, strict=True)))
        before = after
    assert [count for count in grown if count] == [1] * len(before)
    driver.run()
    for prompt, tokens in zip(prompts, driver.tokens, strict=True):
        assert tokens == expected(folder, prompt, 140)


@pytest.mark.parametrize("kv_bits", [None, 8])
def test_a_large_prompt_leaves_time_to_grow(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, kv_bits: int | None
) -> None:
    """Holds even if the prompt ends at the end of its last block."""
    monkeypatch.setattr(kv_memory, "LARGE_BYTES", 0)
    driver = Driver(tiny_model("qwen3"), kv_bits=kv_bits)
    driver.submit(words(255, 1), 20)
    while not driver.tokens[0]:
        driver.step()
    (running,) = driver.engine._batches
    tensors = [caches.kv_tensors(layer) for layer in caches.flat_layers(running._cache.layers)]
    assert {tensor.shape[2] for layer in tensors for tensor in layer} == {512}
    driver.run()
    assert driver.tokens[0] == expected(tiny_model("qwen3"), tuple(words(255, 1)), 20, kv_bits)

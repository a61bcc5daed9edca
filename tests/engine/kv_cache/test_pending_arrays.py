"""Pending arrays keep their inputs alive, each of which is a buffer of the device."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.kv_cache import caches
from greenroom.tests.support.engines.text_engines import Driver
from greenroom.tests.support.texts.prompts import words

STEPS = 1000


def pending(driver: Driver) -> int:
    """Return the number of pending arrays in the caches, including masks and lengths."""
    arrays: list[mx.array] = []
    for batch in driver.engine._batches:
        for layer in caches.flat_layers(batch._cache.layers):
            held: list[Any] = list(vars(layer).values())
            for value in held:
                values = value if isinstance(value, list | tuple) else [value]
                arrays += [each for each in values if isinstance(each, mx.array)]
    graph = io.StringIO()
    mx.export_to_dot(graph, *arrays)
    return graph.getvalue().count("->")


@pytest.mark.deep
def test_arrays_behind_a_hybrid_models_cache_grow_no_more_in_a_long_answer(
    tiny_model: Callable[..., Path],
) -> None:
    driver = Driver(tiny_model("lfm2"))
    for seed in range(2):
        driver.submit(words(20, seed), STEPS)
    counts: list[int] = []
    while driver.engine.has_work:
        driver.step()
        if len(driver.tokens[0]) % 50 == 25:
            counts.append(pending(driver))
    assert len(counts) > STEPS // 60
    assert max(counts[-5:]) <= max(counts[:5])

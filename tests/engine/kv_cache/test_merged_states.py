"""Recurrent layers that are merged while empty create no mask and accumulate no graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.kv_cache import caches
from greenroom.engine.loading.batching_patches import RaggedRows, patch_for_batching
from greenroom.engine.loading.invariance_check import distance
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.scheduler.running_batches import BatchPolicy
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.tests.support.architectures.architectures import make
from greenroom.tests.support.architectures.batching_trials import TOLERANCE, prefilled
from greenroom.tests.support.engines.schedules import soak_only
from greenroom.tests.support.engines.text_engines import Driver, expected

TinyModel = Callable[..., Path]

HYBRID = "nemotron_h"
"""Architecture with recurrent layers, some of them patched, and attention layers."""


def together(folder: Path) -> Driver:
    """Return an engine that batches prefill and decode wherever it can."""
    policy = PrefillPolicy(max_stall=float("inf"), idle_ms=250.0, min_chunk=512, max_chunk=512)
    return Driver(folder, policy, None, BatchPolicy(1e-6))


def prompt_of(length: int, seed: int) -> tuple[int, ...]:
    return tuple(7 + (seed * 131 + at * at * 7 + at * 37) % 2040 for at in range(length))


def masks_made(monkeypatch: pytest.MonkeyPatch) -> list[mx.array | None]:
    """Return a list to which recurrent layers append each mask that they create."""
    from mlx_lm.models.cache import ArraysCache

    made: list[mx.array | None] = []
    make_mask = ArraysCache.make_mask

    def recorded(self: Any, tokens: int) -> mx.array | None:
        made.append(make_mask(self, tokens))
        return made[-1]

    monkeypatch.setattr(ArraysCache, "make_mask", recorded)
    return made


@pytest.mark.parametrize("kind", [HYBRID, "qwen3_next"])
def test_prompts_of_equal_length_are_computed_without_a_mask_from_the_first_pass_on(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = tiny_model(kind)
    driver, prompts = together(folder), [prompt_of(20, seed) for seed in (1, 2, 3)]
    wanted = [expected(folder, prompt, 8) for prompt in prompts]
    masks = masks_made(monkeypatch)
    merged: list[int] = []
    merge = caches.merge

    def counted(rows: Sequence[caches.Cache], **how: bool) -> caches.Cache:
        merged.append(len(rows))
        return merge(rows, **how)

    monkeypatch.setattr(caches, "merge", counted)
    for prompt in prompts:
        driver.submit(prompt, 8)
    driver.run()
    assert merged == [3]
    assert driver.tokens == wanted
    assert masks
    assert all(mask is None for mask in masks)


def test_rows_without_a_state_that_join_others_leave_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(HYBRID)
    patch_for_batching(model)
    prompts = [prompt_of(length, length) for length in (12, 9, 1, 1)]
    alone = [prefilled(model, prompt[:-1]) for prompt in prompts]
    cache = caches.merge(alone[:2])
    caches.extend(cache, caches.merge(alone[2:]))
    masks = masks_made(monkeypatch)
    logits = model(mx.array([prompt[-1:] for prompt in prompts]), cache=cache)[:, -1]
    assert masks == [None] * len(masks)
    for row, prompt in enumerate(prompts):
        wanted = model(mx.array([prompt[-1:]]), cache=prefilled(model, prompt[:-1]))[0, -1]
        assert distance(logits[row], wanted) < TOLERANCE


@pytest.mark.parametrize("announced", [True, False])
def test_a_pass_over_padded_rows_asks_the_device_for_no_lengths(
    monkeypatch: pytest.MonkeyPatch, announced: bool
) -> None:
    """Lengths announced by `caches.prepare` are known on the host; others are read from the device."""
    model = make(HYBRID)
    patch_for_batching(model)
    recurrent = [layer for layer in model.layers if isinstance(layer.mixer, RaggedRows)]
    lengths = [12, 5, 9]
    cache = caches.merge([caches.new_cache(model) for _ in lengths])
    caches.prepare(cache, lengths, [12 - length for length in lengths])
    if not announced:
        for layer in cache:
            layer.prepare(lengths=lengths, right_padding=[12 - length for length in lengths])
    asked: list[object] = []
    tolist = mx.array.tolist

    def counted(self: mx.array) -> object:
        asked.append(tolist(self))
        return asked[-1]

    monkeypatch.setattr(mx.array, "tolist", counted)
    tokens = [[*prompt_of(length, length), *[9] * (12 - length)] for length in lengths]
    for start, end in ((0, 7), (7, 12)):
        model(mx.array([row[start:end] for row in tokens]), cache=cache)
    assert len(recurrent) > 1
    assert asked == ([] if announced else [lengths] * len(recurrent))
    caches.finalize(cache)
    logits = model(mx.array([[3]] * 3), cache=cache)[:, -1]
    for row, length in enumerate(lengths):
        wanted = model(mx.array([[3]]), cache=prefilled(model, prompt_of(length, length)))[0, -1]
        assert distance(logits[row], wanted) < TOLERANCE


STEPS = 1000
WATCHED = 130
"""Number of steps watched at the start and at the end; counters are evaluated every 64 steps."""


def pending_arrays(driver: Driver) -> int:
    """Return the number of arrays that the only batch's cache keeps alive, evaluated or not."""
    (running,) = driver.engine._batches
    arrays = [array for array in mx_arrays(caches.state(running._cache.layers)) if array is not None]
    graph = StringIO()
    mx.export_to_dot(graph, *arrays)
    return graph.getvalue().count("\n")


def mx_arrays(state: Any) -> list[mx.array]:
    """Return the arrays in nested lists."""
    if isinstance(state, mx.array):
        return [state]
    return [array for part in state for array in mx_arrays(part)] if isinstance(state, list | tuple) else []


@pytest.mark.deep
@pytest.mark.parametrize("lengths", [(20, 20), *soak_only((1,))])
def test_a_cache_holds_on_to_no_more_arrays_after_1000_steps(
    tiny_model: TinyModel, lengths: tuple[int, ...]
) -> None:
    """The two rows have equal length: two prompts, or one prompt whose two answers start without a state."""
    driver = together(tiny_model(HYBRID))
    parameters = GenerationParameters(temperature=0.0, n=2 // len(lengths))
    for seed, length in enumerate(lengths):
        driver.submit(prompt_of(length, seed), STEPS + 2, parameters)
    while len(driver.tokens) < 2 or not driver.tokens[1]:
        driver.step()
    counts: Sequence[list[int]] = ([], [])
    for count, steps in zip(counts, (WATCHED, STEPS), strict=True):
        while len(driver.tokens[0]) < steps:
            driver.step()
            if len(driver.tokens[0]) > steps - WATCHED:
                count.append(pending_arrays(driver))
    assert len(driver.tokens) == 2
    assert max(counts[1]) <= max(counts[0])

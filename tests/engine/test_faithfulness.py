"""Tests that our loop gives `mlx_lm.generate`'s answer, token for token, beside any other requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.engine.kv_cache import caches
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.tests.support.architectures.recurrent_kinds import RECURRENT
from greenroom.tests.support.engines.schedules import (
    OVERLAPPING,
    EngineSetup,
    ScheduledRequest,
    deep_only,
    engine_setups,
    run_and_check,
    run_schedule,
    scheduled_requests,
    soak_only,
)
from greenroom.tests.support.engines.text_engines import Driver, expected, loaded
from greenroom.tests.support.models.tiny_kinds import FURTHER
from greenroom.tests.support.models.tiny_models import FAMILIES

ALL_KINDS = (*FAMILIES, "ministral", "granite", "lfm2")
"""Model kinds, including interleaved sliding windows and a hybrid of convolutions and attention."""

UNUSUAL_KINDS = ("qwen3_5", *deep_only("llama4", "gemma2"))
"""Further kinds that every run tests."""

FEW_KINDS = ("qwen3", "gemma3", "lfm2")
"""One kind for each type of cache; the long run covers all."""

LONG_KINDS = tuple(kind for kind in ALL_KINDS if kind not in FEW_KINDS)

EXAMPLES = 60
"""Schedules per kind in a long run."""


@pytest.mark.parametrize("kind", [*FEW_KINDS, *soak_only(*LONG_KINDS)])
def test_a_lone_answer_is_mlx_lms(tiny_model: Callable[..., Path], kind: str) -> None:
    folder = tiny_model(kind)
    driver = Driver(folder)
    prompt = tuple(range(100, 140))
    driver.submit(prompt, 50)
    driver.run()
    assert driver.tokens == [expected(folder, prompt, 50)]


@pytest.mark.parametrize("kind", ["qwen3", *deep_only("gemma3"), "lfm2"])
@settings(max_examples=2)
@given(schedule=st.lists(scheduled_requests(), min_size=2, max_size=7), setup=engine_setups)
def test_answers_are_mlx_lms_whoever_comes_and_goes(
    tiny_model: Callable[..., Path], kind: str, schedule: list[ScheduledRequest], setup: EngineSetup
) -> None:
    run_and_check(tiny_model(kind), schedule, setup)


@pytest.mark.soak
@pytest.mark.parametrize("kind", [*ALL_KINDS, *FURTHER, *RECURRENT])
def test_answers_are_mlx_lms_for_long(tiny_model: Callable[..., Path], kind: str) -> None:
    folder, count, answers, ties = tiny_model(kind), 0, 0, 0

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(schedule=st.lists(scheduled_requests(), min_size=2, max_size=9), setup=engine_setups)
    def soak(schedule: list[ScheduledRequest], setup: EngineSetup) -> None:
        nonlocal count, answers, ties
        ties += run_and_check(folder, schedule, setup)
        answers += len(schedule) * (2 if setup.prefix_cache_bytes else 1)
        count += 1

    soak()
    print(f"{kind}: {count} schedules, {answers} answers, {ties} of them another way where logits tie")
    assert count >= EXAMPLES


@pytest.mark.deep
@pytest.mark.parametrize("kind", [*UNUSUAL_KINDS, *soak_only("glm4_moe_lite", "granite_hybrid")])
def test_unusual_layers_answer_as_mlx_lm_does(tiny_model: Callable[..., Path], kind: str) -> None:
    """Runs the schedule twice in small chunks: the second has prefix hits and frequent rearrangements."""
    folder = tiny_model(kind)
    run_and_check(folder, OVERLAPPING, EngineSetup(16, 2, 1.0, 0.3, 0.5, 1e-6, 5, 1 << 28))


@pytest.mark.parametrize("kind", ["recurrent_gemma", *deep_only("gemma3n"), *soak_only(*RECURRENT)])
def test_prompts_of_unequal_length_that_come_together(tiny_model: Callable[..., Path], kind: str) -> None:
    """The prompts share a padded prefill chunk; the second time, they continue from its cached prefixes."""
    folder = tiny_model(kind)
    driver = Driver(folder, prefix_cache=PrefixCache(1 << 28))
    prompts = [tuple(range(start, start + 45 - start // 100)) for start in (100, 300, 600, 900, 1200)]
    for _ in range(2):
        driver.restart()
        for prompt in prompts:
            driver.submit(prompt, 20)
        driver.run()
        assert driver.tokens == [expected(folder, prompt, 20) for prompt in prompts]


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["gemma3", *soak_only("qwen3")])
def test_embedded_prompts_among_others(tiny_model: Callable[..., Path], kind: str) -> None:
    """Prompts given as embeddings share batches with token ids; one is cancelled during prefill."""
    folder = tiny_model(kind)
    model, _ = loaded(folder)
    driver = Driver(folder, PrefillPolicy(min_chunk=16, max_chunk=16), PrefixCache(1 << 28))
    prompts = [
        tuple(range(start, start + length)) for start, length in ((100, 40), (300, 90), (500, 40), (700, 25))
    ]
    for index, prompt in enumerate(prompts):
        if index % 2:
            driver.submit(prompt, 30)
        else:
            embeddings = model.model.embed_tokens(mx.array(prompt))
            driver.submit([9] * (len(prompt) - 1) + [prompt[-1]], 30, embeddings=embeddings)
        if index == 2:
            driver.step()
            driver.step()
            driver.engine.cancel("2")
    driver.run()
    wanted = [expected(folder, prompt, 30) for prompt in prompts]
    assert driver.tokens == [*wanted[:2], [], wanted[3]]
    driver.submit([9] * 39 + [prompts[0][-1]], 30)
    driver.run()
    assert driver.tokens[4] == expected(folder, tuple([9] * 39 + [prompts[0][-1]]), 30)


def is_faithful(folder: Path) -> bool:
    driver = Driver(folder)
    run_schedule(driver, OVERLAPPING)
    ordered = sorted(OVERLAPPING, key=lambda request: request.submit_at)
    return all(
        got == expected(folder, request.prompt, request.max_tokens)[: len(got)]
        for request, got in zip(ordered, driver.tokens, strict=True)
    )


@pytest.fixture(scope="module", params=["gemma3", *soak_only("qwen3", "llama", "glm4", "mistral")])
def folder(request: pytest.FixtureRequest, tiny_model: Callable[..., Path]) -> Iterator[Path]:
    """Folder of a model whose answers are right unless a fault is planted."""
    folder = tiny_model(request.param)
    yield folder
    assert is_faithful(folder)


def test_a_lost_prompt_token_shows(folder: Path) -> None:
    """Planted fault: a prompt's prefill chunk starts one token late."""
    from greenroom.engine.text.scheduler.prefill_policy import PrefillRequest

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            PrefillRequest, "remaining", property(lambda self: len(self.sequence.prompt) - 2 - self.computed)
        )
        assert not is_faithful(folder)


@pytest.mark.deep
def test_a_mask_that_is_off_by_one_shows(folder: Path) -> None:
    """Planted fault: batched rows see one position of their padding, or miss their first token."""
    merge = caches.merge

    for shift in (-1, 1):

        def shifted(plain: Any, shift: int = shift, **how: bool) -> Any:
            cache = merge(plain, **how)
            for layer in cache:
                layer.left_padding = layer.left_padding + shift
            return cache

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(caches, "merge", shifted)
            assert not is_faithful(folder)


def test_a_stale_cache_row_shows(folder: Path) -> None:
    """Planted fault: when rows are filtered, the cache keeps the row before the last one in its place."""
    filter_rows = caches.filter_rows

    def stale(cache: Any, rows: list[int], **how: bool) -> None:
        filter_rows(cache, [*rows[:-1], max(rows[-1] - 1, 0)], **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caches, "filter_rows", stale)
        assert not is_faithful(folder)

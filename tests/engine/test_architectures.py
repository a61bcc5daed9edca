"""Tests that every architecture of mlx-lm, made tiny, answers as `mlx_lm.generate` does, in any company."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache import caches as batching
from greenroom.engine.loading.invariance_check import distance
from greenroom.engine.text.scheduler.prefill_policy import PrefillRequest
from greenroom.engine.text.scheduler.prefill_runner import PrefillRunner
from greenroom.tests.support.architectures.architecture_fields import NOT_MADE
from greenroom.tests.support.architectures.architectures import make, make_folder, names
from greenroom.tests.support.architectures.batching_trials import TOLERANCE, prefilled
from greenroom.tests.support.engines.schedules import (
    EngineSetup,
    ScheduledRequest,
    deep_only,
    run_and_check,
    soak_only,
)
from greenroom.tests.support.engines.text_engines import Driver, expected, loaded
from greenroom.tests.support.models.tiny_models import make_tokenizer

FEW = ("nemotron_h", "afm7", "internlm3")
"""Architectures patched for prefill, patched for decoding, and computed alone; the long run covers all."""

ARCHITECTURES = names()

BY_CUT = "plamo3"
"""Excluded: even with mlx-lm alone, the logits depend on how a prompt is split into chunks."""

OTHERS = tuple(name for name in ARCHITECTURES if name not in (*FEW, BY_CUT))

CHANGES: dict[str, dict[str, Any]] = {"gear": {"layer_types": ["sliding_attention", "full_attention"] * 2}}
"""Configuration changes that a folder needs; transformers refuses Gear's `conv_mixer`."""

DISTINCT = 6
"""Least number of distinct tokens in a lone answer, so that a fault of a cache would show."""

TRANSFORMERS = (
    "ignore:`rope_scaling` is deprecated:FutureWarning",
    "ignore:.*rope.*:UserWarning",
)
"""Warnings of transformers about fields that mlx-lm's architectures need."""


def prompt_of(length: int, seed: int) -> tuple[int, ...]:
    return tuple(7 + (seed * 131 + at * at * 7 + at * 37) % 2040 for at in range(length))


SCHEDULE = [
    *(ScheduledRequest(0, prompt_of(length, length), 14, None) for length in (40, 36, 33, 31, 2)),
    ScheduledRequest(3, prompt_of(1, 3), 18, None),
    ScheduledRequest(5, prompt_of(23, 5), 16, 12),
    ScheduledRequest(9, prompt_of(55, 8), 10, None),
    ScheduledRequest(9, prompt_of(52, 9), 6, None),
]
"""Prompts of similar and different lengths, some of one token or longer than any window; all but one end
while others continue.
"""

WHOLE_PROMPTS = EngineSetup(512, 1, 250.0, float("inf"), 1.0, 0.01, 5, 1 << 28)
CHUNKS = EngineSetup(16, 1, 1.0, 0.3, 0.5, 1e-6, 3, 1 << 28)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    home = tmp_path_factory.mktemp("architectures")
    make_tokenizer(home)
    return lambda name: make_folder(name, home / f"tiny-{name}", home, **CHANGES.get(name, {}))


def test_what_is_not_made_is_no_more_than_what_cannot_be() -> None:
    assert sorted(NOT_MADE) == ["bitnet", "muse_spark", "olmo", "phi3small", "prism_hadamard_qwen35"]
    assert len(ARCHITECTURES) == 121


def test_what_is_left_out_differs_from_itself_by_how_a_prompt_is_cut() -> None:
    model, tokens, logits = make(BY_CUT), list(prompt_of(40, 1)), []
    for cut in (0, 20):
        cache = prefilled(model, tokens[:cut])
        model(mx.array([tokens[cut:-1]]), cache=cache)
        logits.append(model(mx.array([tokens[-1:]]), cache=cache)[0, -1])
    assert distance(*logits) > TOLERANCE


@pytest.mark.filterwarnings(*TRANSFORMERS)
@pytest.mark.parametrize("name", [FEW[0], *deep_only(*FEW[1:]), *soak_only(*OTHERS)])
def test_answers_are_mlx_lms(
    folder_of: Callable[[str], Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers lone requests, padded batches, requests that join and leave, and prefix hits."""
    padded = 0
    compute_together = PrefillRunner.compute_together

    def counted(self: PrefillRunner, requests: Sequence[PrefillRequest]) -> Any:
        nonlocal padded
        padded += len({request.remaining for request in requests}) > 1
        return compute_together(self, requests)

    monkeypatch.setattr(PrefillRunner, "compute_together", counted)
    folder = folder_of(name)
    driver, prompt = Driver(folder), prompt_of(40, 1)
    driver.submit(prompt, 40)
    driver.run()
    wanted = expected(folder, prompt, 40)
    assert driver.tokens == [wanted]
    assert len(set(wanted)) >= DISTINCT
    ties = sum(run_and_check(folder, SCHEDULE, setup) for setup in (WHOLE_PROMPTS, CHUNKS))
    model, _ = loaded(folder)
    alone = batching.prefills_alone(model)
    assert (padded > 0) != alone
    assert caches.can_batch(caches.new_cache(model)) or alone
    print(f"{name}: {padded} padded prefills, {ties} answers another way where logits tie")

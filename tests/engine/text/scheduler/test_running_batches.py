"""Tests of running batches, mainly of sequences preempted just after a move between batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import pytest

from greenroom.engine.kv_cache.size_model import CacheSizeModel
from greenroom.engine.text.batch import Batch
from greenroom.engine.text.batch_cache import PrefilledSequences
from greenroom.engine.text.kv_memory import KvMemory
from greenroom.engine.text.sampling_parameters import SamplingParameters
from greenroom.engine.text.scheduler import running_batches
from greenroom.engine.text.scheduler.running_batches import BatchPolicy, RunningBatches
from greenroom.engine.text.scheduler.step_costs import StepCosts
from greenroom.engine.text.sequence import Sequence
from greenroom.tests.support.engines.text_engines import GREEDY, loaded, prefilled_cache

TinyModel = Callable[..., Path]


def prefilled(folder: Path, name: str, length: int) -> PrefilledSequences:
    prompt = tuple(range(100, 100 + length))
    text = cast(Any, None)  # nothing of it is decoded
    sampling = SamplingParameters.of(GREEDY, frozenset(), 0)
    sequence = Sequence(name, prompt, 50, frozenset(), sampling, text)
    return PrefilledSequences((sequence,), prefilled_cache(folder, prompt[:-1]))


@pytest.mark.parametrize(("moves", "active"), [(1, [1, 1]), (2, [2, 0])], ids=["split", "merged"])
def test_a_token_of_a_preempted_sequence_is_not_read_where_it_was_sampled(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, moves: int, active: list[int]
) -> None:
    """The token is sampled again when the sequence resumes, and would otherwise be in the answer twice."""
    monkeypatch.setattr(running_batches, "STEPS_PER_REARRANGEMENT", 1)
    folder = tiny_model("qwen3")
    model, _ = loaded(folder)
    memory = KvMemory(None, CacheSizeModel.of(model), None)
    batches = RunningBatches(model, StepCosts(), BatchPolicy(hysteresis=1e-9), memory)
    long, short = prefilled(folder, "long", 60), prefilled(folder, "short", 20)
    batches.add([long, short])
    for _ in range(moves):
        assert set(step(batches)) <= {"long", "short"}
        batches.maybe_rearrange()
    assert [batch.active for batch in batches] == active
    batches.preempt(short.sequences[0])
    assert step(batches) == ["long"]


@pytest.mark.parametrize(
    ("ms_per_megabyte", "pass_ms", "shapes"), [(0.0, 0.0, 1), (0.01, 0.0, 1), (1e4, 0.0, 2), (1e4, 1e5, 1)]
)
def test_who_would_hold_up_others_by_joining_decodes_beside(
    tiny_model: TinyModel,
    monkeypatch: pytest.MonkeyPatch,
    ms_per_megabyte: float,
    pass_ms: float,
    shapes: int,
) -> None:
    """Except where a pass of a batch beside would take as long as the copy: a slow or a busy machine."""
    monkeypatch.setattr(running_batches, "STEPS_PER_REARRANGEMENT", 1)
    folder = tiny_model("qwen3")
    model, _ = loaded(folder)
    costs = StepCosts()
    if ms_per_megabyte:
        costs.observe_copy(1_000_000, ms_per_megabyte)
    costs.observe([(1, 60)], [], pass_ms)
    batches = RunningBatches(model, costs, None, KvMemory(None, CacheSizeModel.of(model), None))
    batches.add([prefilled(folder, "one", 60)])
    step(batches)
    batches.add([prefilled(folder, "other", 58)])
    step(batches)
    batches.maybe_rearrange()
    assert len(batches.shapes) == shapes


@pytest.mark.deep
def test_who_does_not_fit_into_a_batch_fails_alone(tiny_model: TinyModel) -> None:
    """If several sequences fail to join at once, each is tried by itself."""
    folder = tiny_model("qwen3")
    model, _ = loaded(folder)
    batches = RunningBatches(model, StepCosts(), None, KvMemory(None, CacheSizeModel.of(model), None))
    batches.add([prefilled(folder, "one", 60)])
    step(batches)
    bad = prefilled(folder, "bad", 55)
    for layer in bad.cache:
        layer.keys = mx.concatenate([layer.keys, layer.keys], axis=1)
    failures = batches.add([prefilled(folder, "other", 58), bad, prefilled(folder, "third", 57)])
    assert [sequence.request_id for sequence, _ in failures] == ["bad"]
    (batch,) = batches
    assert {sequence.request_id for sequence in batch.sequences if sequence} == {"one", "other", "third"}
    step(batches)
    assert sorted(step(batches)) == ["one", "other", "third"]


def test_a_sequence_that_moved_just_before_a_merge_is_removed_where_it_went(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    model, _ = loaded(folder)
    batches = RunningBatches(model, StepCosts(), None, KvMemory(None, CacheSizeModel.of(model), None))
    one, other, third = (prefilled(folder, str(length), length) for length in (60, 58, 20))
    batches.add([one, other])
    step(batches)
    old, new = next(iter(batches)), Batch(model, third)
    moved = old.split(other.sequences)
    new.merge(old)
    old.remove(other.sequences[0])
    assert moved.active == 0
    assert new.active == 2


def step(batches: RunningBatches) -> list[str]:
    """Launch a step; return the ids of the requests whose previous tokens are read."""
    batches.launch()
    read = [sequence.request_id for batch in batches for sequence, _ in batch.read()]
    for batch in batches:
        batch.sample()
    batches.remove_finished()
    return read

"""Schedules of requests that come and go, engine configurations, and the check against mlx-lm's answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx
import pytest
from hypothesis import strategies as st

from greenroom.engine.text import batch as batch_module
from greenroom.engine.text.batch import CompactionPolicy
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.scheduler import running_batches
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.engine.text.scheduler.running_batches import BatchPolicy
from greenroom.schemas.events.events import Failed, Finished
from greenroom.tests.support.engines.text_engines import Driver, expected, loaded
from greenroom.tests.support.models.tiny_kinds import VOCABULARY
from greenroom.tests.support.models.tiny_models import SPECIAL_TOKENS

TIE = 1e-3
"""Difference below which two logits count as tied: in a batch, sums are computed in another order."""

tokens = st.integers(len(SPECIAL_TOKENS), VOCABULARY - 1)
lengths = st.sampled_from([1, 2, 3, 17, 31, 32, 33, 34, 70, 150])
"""Prompt lengths around the sliding window of 32, and several times as long."""


@attrs.frozen
class ScheduledRequest:
    """A request with the steps of its submission and cancellation.

    Args:
        submit_at: Step before which it is submitted.
        cancel_at: Step before which it is cancelled, if it is still running.
    """

    submit_at: int
    prompt: tuple[int, ...]
    max_tokens: int
    cancel_at: int | None


@st.composite
def scheduled_requests(draw: st.DrawFn) -> ScheduledRequest:
    seed = draw(tokens)
    length = draw(lengths)
    span = VOCABULARY - len(SPECIAL_TOKENS)
    prompt = tuple(len(SPECIAL_TOKENS) + (seed * 31 + i * i * 7 + i * seed) % span for i in range(length))
    at = draw(st.integers(0, 40))
    cancelled_after = draw(st.none() | st.integers(1, 30))
    count = draw(st.sampled_from([1, 2, 5, 24, 60]))
    return ScheduledRequest(at, prompt, count, None if cancelled_after is None else at + cancelled_after)


def run_schedule(driver: Driver, schedule: list[ScheduledRequest]) -> None:
    """Submit and cancel requests as scheduled, and step until all are finished."""
    pending = sorted(schedule, key=lambda request: request.submit_at)
    ids: dict[int, str] = {}
    step = 0
    while len(ids) < len(pending) or driver.engine.has_work:
        for number, request in enumerate(pending):
            if request.submit_at == step:
                ids[number] = driver.submit(request.prompt, request.max_tokens)
            if request.cancel_at == step and number in ids:
                driver.engine.cancel(ids[number])
        driver.step()
        step += 1


def check_answers(folder: Path, driver: Driver, schedule: list[ScheduledRequest]) -> int:
    """Assert that every answer ended as expected with mlx-lm's tokens, or a prefix of them if cancelled.

    Returns:
        Number of answers that differ because logits tie.
    """
    ties = 0
    ordered = sorted(schedule, key=lambda request: request.submit_at)
    for request, got, events in zip(ordered, driver.tokens, driver.events.values(), strict=True):
        last = events[-1]
        assert isinstance(last, Finished)
        assert sum(isinstance(event, Finished | Failed) for event in events) == 1
        assert last.usage.generated == len(got)
        if last.reason == "length":
            assert len(got) == request.max_tokens
        else:
            assert (last.reason, request.cancel_at is None) == ("cancelled", False)
        if got != expected(folder, request.prompt, request.max_tokens, driver.kv_bits)[: len(got)]:
            assert driver.kv_bits is None
            assert logit_shortfall(folder, request.prompt, got) < TIE
            ties += 1
    return ties


def logit_shortfall(folder: Path, prompt: Sequence[int], got: Sequence[int]) -> float:
    """Return the largest gap between the top logit and an answer's token, from one plain forward pass."""
    model, _ = loaded(folder)
    logits = model(mx.array([[*prompt, *got[:-1]]]))[0, len(prompt) - 1 :].astype(mx.float32)
    chosen = mx.take_along_axis(logits, mx.array(list(got))[:, None], axis=-1)[:, 0]
    return float(mx.max(mx.max(logits, axis=-1) - chosen))


@attrs.frozen
class EngineSetup:
    """Parameters of an engine; no choice of them may change the tokens.

    Args:
        min_chunk: Minimum size of a prefill chunk in tokens, at any cost.
        chunk_factor: Maximum size of a chunk, as a multiple of `min_chunk`.
        idle_ms: Maximum cost of a chunk in milliseconds while nothing decodes.
        max_stall: Maximum cost of a chunk beside running sequences, in decode steps.
        compaction_threshold: Wasted steps before a batch is compacted.
        hysteresis: Hysteresis of batch splits and merges; small values make both frequent.
        rearrange_steps: Steps between two rearrangements of batches.
        prefix_cache_bytes: Budget of the prefix cache in bytes; 0 disables it.
    """

    min_chunk: int
    chunk_factor: int
    idle_ms: float
    max_stall: float
    compaction_threshold: float
    hysteresis: float
    rearrange_steps: int
    prefix_cache_bytes: int

    def driver(self, folder: Path, patch: pytest.MonkeyPatch) -> Driver:
        """Return a driver of an engine with these parameters."""
        policy = PrefillPolicy(
            max_stall=self.max_stall,
            idle_ms=self.idle_ms,
            min_chunk=self.min_chunk,
            max_chunk=self.min_chunk * self.chunk_factor,
        )
        compaction = partial(CompactionPolicy, threshold=self.compaction_threshold)
        patch.setattr(batch_module, "CompactionPolicy", compaction)
        patch.setattr(running_batches, "STEPS_PER_REARRANGEMENT", self.rearrange_steps)
        prefix_cache = PrefixCache(self.prefix_cache_bytes) if self.prefix_cache_bytes else None
        return Driver(folder, policy, prefix_cache, BatchPolicy(self.hysteresis))


engine_setups = st.builds(
    EngineSetup,
    min_chunk=st.sampled_from([1, 7, 32, 64, 512]),
    chunk_factor=st.sampled_from([1, 1, 3, 64]),
    idle_ms=st.sampled_from([0.01, 3.0, 250.0]),
    max_stall=st.sampled_from([0.0, 0.3, 2.0, float("inf")]),
    compaction_threshold=st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e9]),
    hysteresis=st.sampled_from([1e-6, 0.01, 1.5]),
    rearrange_steps=st.sampled_from([1, 3, 32]),
    prefix_cache_bytes=st.sampled_from([0, 1 << 18, 1 << 28]),
)


def run_and_check(folder: Path, schedule: list[ScheduledRequest], setup: EngineSetup) -> int:
    """Run a schedule, twice if there is a prefix cache, and check the answers.

    Returns:
        Number of answers that differ because logits tie.
    """
    ties = 0
    with pytest.MonkeyPatch.context() as patch:
        driver = setup.driver(folder, patch)
        for _ in range(2 if setup.prefix_cache_bytes else 1):
            driver.restart()
            run_schedule(driver, schedule)
            ties += check_answers(folder, driver, schedule)
    return ties


OVERLAPPING = [
    ScheduledRequest(0, tuple(range(100, 140)), 32, None),
    ScheduledRequest(0, tuple(range(300, 320)), 12, None),
    ScheduledRequest(3, tuple(range(700, 750)), 32, None),
    ScheduledRequest(9, tuple(range(900, 905)), 24, 20),
    ScheduledRequest(12, tuple(range(1200, 1240)), 16, None),
]


def soak_only(*kinds: object) -> list[Any]:
    """Return parameters that only the soak run tests."""
    return [pytest.param(kind, marks=pytest.mark.soak) for kind in kinds]


def deep_only(*kinds: object) -> list[Any]:
    """Return parameters that take seconds more than they find, which `make deep` tests."""
    return [pytest.param(kind, marks=pytest.mark.deep) for kind in kinds]

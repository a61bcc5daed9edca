"""No pass of an encoder takes long, not even the first of a large model on a slow device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from greenroom.engine.encoding.encoder_engine import measure_passes
from greenroom.engine.encoding.row_queue import LONGEST, TARGET, TokenBudget
from greenroom.engine.encoding.rows import Row, Values
from greenroom.schemas.events.result_events import Score

WAIT = 0.25
"""Longest time in seconds that another model's stream may wait for a pass."""


class CostlyModel:
    """A model whose passes advance a fake clock by a given cost."""

    def __init__(self, fixed: float, per_token: float) -> None:
        self.fixed, self.per_token = fixed, per_token
        self.now = 0.0
        self.longest = 0.0
        self.passes = 0

    def seconds(self, tokens: int) -> float:
        return self.fixed + self.per_token * tokens

    def compute(self, rows: Sequence[Row]) -> Values:
        self.take(len(rows) * max(len(row.tokens) for row in rows))
        return np.zeros((len(rows), 1), np.float32)

    def take(self, tokens: int) -> float:
        taken = self.seconds(tokens)
        self.now += taken
        self.passes += 1
        self.longest = max(self.longest, taken)
        return taken

    def event(self, prepared: Any, index: int, values: Values) -> Score:
        raise NotImplementedError

    def batch_bytes(self, rows: int, width: int) -> int:
        return 0


def compute_all(model: CostlyModel, budget: TokenBudget, tokens: int, width: int) -> None:
    """Compute a number of tokens in rows of one width, as the engine does."""
    while tokens > 0:
        size = min(tokens, max(1, int(budget.tokens) // width) * width)
        budget.observe(size, model.take(size))
        tokens -= size


@pytest.mark.parametrize(
    ("fixed", "per_token"),
    [
        (0.0, 0.02),  # one wide layer in a 16-bit dtype, for which the CPU has no kernels
        (0.001, 0.005),
        (0.15, 0.0005),  # a large model whose weights take long to read
        (0.05, 0.0001),
        (0.002, 0.00001),
        (0.0005, 0.000001),  # a small one on a large device
    ],
)
def test_no_pass_takes_longer_than_others_can_wait(fixed: float, per_token: float) -> None:
    model = CostlyModel(fixed, per_token)
    budget = measure_passes(model, lambda: model.now)
    compute_all(model, budget, 20_000, width=4)
    assert model.longest < WAIT


def test_the_first_pass_of_a_slow_model_is_one_row() -> None:
    model = CostlyModel(0.0, 0.02)
    budget = measure_passes(model, lambda: model.now)
    assert budget.tokens == pytest.approx(TARGET / 0.02)


def test_most_of_the_time_goes_to_tokens_where_weights_take_long_to_read() -> None:
    """Passes of one row each would take five times as long."""
    model = CostlyModel(0.09, 0.001)
    budget = measure_passes(model, lambda: model.now)
    model.now = 0.0
    compute_all(model, budget, 10_000, width=10)
    assert model.now < 10_000 * 0.001 * 2.1


def test_a_fast_model_has_large_passes_soon() -> None:
    model = CostlyModel(0.001, 0.000002)
    budget = measure_passes(model, lambda: model.now)
    assert budget.tokens >= 4_096
    for _ in range(5):
        budget.observe(int(budget.tokens), model.take(int(budget.tokens)))
    assert model.seconds(int(budget.tokens)) == pytest.approx(TARGET, rel=0.05)


def test_one_slow_pass_is_enough_to_learn_from() -> None:
    budget = TokenBudget(2_048)
    budget.observe(2_048, 6.7)
    assert budget.tokens * 6.7 / 2_048 <= TARGET


def test_a_busy_moment_at_the_load_is_forgotten() -> None:
    """Passes at load time took 10 ms per token; afterwards the device is idle otherwise."""
    slow, fast = CostlyModel(0.1, 0.01), CostlyModel(0.002, 0.00005)
    budget = measure_passes(slow, lambda: slow.now)
    compute_all(fast, budget, 20_000, width=4)
    assert fast.seconds(int(budget.tokens)) == pytest.approx(TARGET, rel=0.1)


def test_passes_that_take_long_whatever_their_size_stay_within_what_others_can_wait_for() -> None:
    budget = TokenBudget(64, fixed=0.19)
    budget.observe(64, 0.21)
    assert 0.19 + budget.tokens * (0.02 / 64) <= LONGEST + 1e-9


def test_a_device_that_is_far_too_slow_is_asked_for_a_row_at_a_time() -> None:
    budget = TokenBudget.measured([(4, 0.9), (8, 1.0)])
    assert budget.tokens == 1.0
    budget.observe(8, 1.0)
    assert budget.tokens == 1.0


def test_passes_of_two_sizes_that_take_as_long_tell_of_no_cost_of_a_token() -> None:
    assert TokenBudget.measured([(4, 0.9), (8, 0.5)]).tokens == 16

"""Batching of rows into forward passes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from greenroom.engine.encoding.encoder_engine import measure_passes
from greenroom.engine.encoding.row_queue import (
    LONGEST,
    MAX_PADDING,
    TARGET,
    Batch,
    Job,
    RowQueue,
    TokenBudget,
)
from greenroom.engine.encoding.rows import PreparedRows, Row, Values
from greenroom.schemas.events.result_events import Score
from greenroom.tests.support.engines.embedders import embedding_request


def job(request_id: str, *lengths: int, client: str = "") -> Job:
    """Return a request with rows of these lengths."""
    rows = tuple(Row(np.zeros(length, np.int32)) for length in lengths)
    return Job(embedding_request([], request_id, client), PreparedRows(rows))


def take(queue: RowQueue, max_rows: Callable[[int], int], free_padding: float = 0) -> Batch | None:
    """Return the next pass, or None."""
    first = queue.choose()
    return None if first is None else queue.take(first, max_rows, free_padding)


def taken(queue: RowQueue, tokens: int) -> list[Batch]:
    """Return all passes up to the end, under a budget of tokens."""
    passes = []
    while (batch := take(queue, lambda width: tokens // width)) is not None:
        passes.append(batch)
        for done, _ in batch.members:
            if not done.waiting:
                queue.remove(done.request.id)
    return passes


def test_every_row_is_computed_once_in_passes_that_are_mostly_full() -> None:
    source, queue = random.Random(0), RowQueue()
    jobs = [job(f"{at}", *(source.randint(1, 200) for _ in range(100))) for at in range(50)]
    for added in jobs:
        queue.add(added)
    passes = taken(queue, 4_000)
    computed = sorted((done.request.id, index) for batch in passes for done, index in batch.members)
    assert computed == sorted((added.request.id, index) for added in jobs for index in range(100))
    padded = sum(batch.width * len(batch.members) for batch in passes)
    tokens = sum(sum(added.lengths) for added in jobs)
    assert padded <= tokens * 1.1
    assert len(passes) <= tokens / 4_000 * 1.5


def test_requests_are_given_away_in_the_order_in_which_it_is_their_clients_turn() -> None:
    queue = RowQueue()
    for name, client in (("1", "one"), ("2", "two"), ("3", "one"), ("4", "three")):
        queue.add(job(name, *[10] * 50, client=client))
    for _ in range(2):
        take(queue, lambda width: 8)
    assert [left.request.id for left in queue.clear()] == ["4", "1", "3", "2"]
    assert not len(queue)
    assert queue.clear() == []


def test_padding_of_a_pass_is_bounded() -> None:
    queue = RowQueue()
    queue.add(job("long", 4_000, 100))
    queue.add(job("short", *[10] * 50))
    for batch in taken(queue, 8_000):
        lengths = [done.lengths[index] for done, index in batch.members]
        assert batch.padding == sum(batch.width - length for length in lengths)
        assert batch.padding <= max(0, MAX_PADDING * batch.width * len(lengths))


def test_a_small_request_is_computed_within_two_passes_beside_a_large_one() -> None:
    queue = RowQueue()
    queue.add(job("large", *[100] * 5_000))
    for _ in range(3):
        take(queue, lambda width: 20)
    queue.add(job("small", 5))
    computed = [
        done.request.id
        for _ in range(2)
        if (batch := take(queue, lambda width: 20))
        for done, _ in batch.members
    ]
    assert "small" in computed
    assert "large" in computed


def test_a_large_request_goes_on_beside_a_stream_of_small_ones() -> None:
    queue = RowQueue()
    large = job("large", *[100] * 200)
    queue.add(large)
    for at in range(20):
        queue.add(job(f"small {at}", 50))
        take(queue, lambda width: 10)
    assert len(large.waiting) <= 100


def test_clients_take_turns() -> None:
    queue = RowQueue()
    for at in range(20):
        queue.add(job(f"busy {at}", *[100] * 50, client="10.0.0.1"))
    quiet = job("quiet", *[100] * 40, client="10.0.0.2")
    queue.add(quiet)
    for _ in range(8):
        take(queue, lambda width: 10)
    assert not quiet.waiting


def test_rows_that_could_not_be_computed_wait_again() -> None:
    queue, added = RowQueue(), job("one", 5, 9, 7, 1)
    queue.add(added)
    batch = take(queue, lambda width: 3, 10)
    assert batch is not None
    assert [added.lengths[index] for _, index in batch.members] == [9, 7, 5]
    queue.put_back(batch)
    assert [added.lengths[index] for index in added.waiting] == [1, 5, 7, 9]
    assert added.tokens_left == 22


def test_whose_last_request_was_large_competes_as_a_newcomer_after_an_idle_time() -> None:
    queue = RowQueue()
    queue.add(job("large", 4_000, client="before"))
    queue.add(job("small", 10, client="other"))
    assert len(taken(queue, 4_000)) == 2
    queue.add(job("before", *[10] * 10, client="before"))
    queue.add(job("new", *[10] * 10, client="new"))
    passes = [take(queue, lambda width: 1) for _ in range(10)]
    rows = [done for batch in passes if batch for done, _ in batch.members]
    assert [done.request.client for done in rows].count("before") == 5


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

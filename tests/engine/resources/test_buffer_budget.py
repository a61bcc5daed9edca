"""Device buffers counted for all models of a process: prefix caches stay within their fair shares."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from greenroom.engine.resources.buffer_budget import BufferBudget
from greenroom.engine.resources.memory_account import MemoryAccount, Share

LIMIT = 1000
QUARTER = 250


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300)), max_size=60))
def test_prefix_caches_never_have_more_than_a_quarter_of_the_buffers(moves: list[tuple[int, int]]) -> None:
    budget = BufferBudget(LIMIT)
    parts = [budget.open_part() for _ in range(3)]
    for index, count in moves:
        others = sum(part.cached for part in parts) - parts[index].cached
        assert parts[index].charge_cached(count) == min(count, QUARTER - others)
        assert budget.cached == sum(part.cached for part in parts) <= QUARTER


def test_without_a_limit_everything_is_counted_and_nothing_refused() -> None:
    part = BufferBudget().open_part()
    assert part.charge_cached(1_000_000) == 1_000_000
    part.charge_running(1_000_000)
    assert (part.cached_limit, part.pop_requested()) == (None, 0)


def test_a_model_that_comes_later_gets_an_equal_share() -> None:
    account = MemoryAccount(buffer_limit=LIMIT)
    first, later = Share(account), Share(account)
    asked: list[int] = []
    first.on_eviction_request = lambda: asked.append(first.buffers.requested)
    assert first.buffers.charge_cached(QUARTER) == QUARTER
    assert later.buffers.charge_cached(200) == 0
    assert asked == [QUARTER // 2]
    assert first.buffers.pop_requested() == QUARTER // 2
    assert first.buffers.charge_cached(QUARTER - QUARTER // 2) == QUARTER // 2
    assert later.buffers.charge_cached(200) == QUARTER // 2
    assert later.buffers.charge_cached(200) == QUARTER // 2
    assert (first.buffers.pop_requested(), account.statistics().cached_buffers) == (0, QUARTER)
    later.close()
    assert first.buffers.charge_cached(QUARTER) == QUARTER


def test_prefix_caches_give_way_to_running_caches() -> None:
    budget = BufferBudget(LIMIT)
    large, small = budget.open_part(), budget.open_part()
    large.charge_cached(150)
    small.charge_cached(100)
    small.charge_running(300)
    assert budget.cached_limit == 200
    assert (large.pop_requested(), small.pop_requested()) == (50, 0)
    small.charge_running(900)
    assert budget.cached_limit == 0
    assert (large.pop_requested(), small.pop_requested()) == (150, 100)
    assert large.charge_cached(150) == 0

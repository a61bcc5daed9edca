"""Budgets of small frames end floods, and nothing else."""

from __future__ import annotations

from greenroom.http.transport.web_socket import FrameBudget


def test_a_flood_of_empty_frames_ends() -> None:
    budget = FrameBudget(lambda: 0.0)
    taken = [budget.take(0) for _ in range(3_000)]
    assert taken.count(True) == 500
    assert not any(taken[500:])


def test_frames_of_some_length_may_be_many() -> None:
    budget = FrameBudget(lambda: 0.0)
    assert all(budget.take(64) for _ in range(100_000))


def test_time_pays_for_frames() -> None:
    now = 0.0
    budget = FrameBudget(lambda: now)
    for _ in range(20):
        assert all(budget.take(0) for _ in range(400))
        now += 10.0
    assert [budget.take(0) for _ in range(3_000)].count(True) == 500, "it is never more than at the start"

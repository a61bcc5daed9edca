"""Tests of the semaphore for the cooperative preparation of requests."""

from __future__ import annotations

import threading

import pytest

from greenroom.engine.resources import preparation_steps
from greenroom.engine.resources.preparation_steps import PENDING, PreparationSteps, StepSemaphore, run_to_end


class TimedSemaphore(threading.BoundedSemaphore):
    """Semaphore that records the total time callers would have waited, without waiting."""

    waited = 0.0

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        self.waited += timeout or 0.0
        return super().acquire(blocking=False)


def work(semaphore: StepSemaphore, looks: int) -> PreparationSteps[str]:
    yield from semaphore.acquire()
    try:
        for _ in range(looks):
            yield PENDING
    finally:
        semaphore.release()
    return "done"


def test_only_so_many_work_at_once_and_whoever_leaves_makes_room() -> None:
    semaphore = StepSemaphore(2)
    first, second, third, fourth = (work(semaphore, 1) for _ in range(4))
    assert [next(each) for each in (first, second, third, fourth)] == [PENDING] * 4
    assert semaphore._waiting == 2
    third.close()
    assert semaphore._waiting == 1
    first.close()
    assert next(fourth) == PENDING
    assert semaphore._waiting == 0
    assert run_to_end(second) == run_to_end(fourth) == run_to_end(work(semaphore, 5)) == "done"


@pytest.mark.parametrize("waiting", [1, 100])
def test_who_holds_it_waits_for_one_look_of_all_the_others(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "BoundedSemaphore", TimedSemaphore)
    semaphore = StepSemaphore(1)
    others = [work(semaphore, 1) for _ in range(waiting + 1)]
    for each in others:
        next(each)
    timed = semaphore._free
    assert isinstance(timed, TimedSemaphore)
    before = timed.waited
    for each in others[1:]:
        next(each)
    assert timed.waited - before == pytest.approx(preparation_steps._POLL_SECONDS)

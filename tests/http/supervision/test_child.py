"""The supervising parent's decisions after each kind of end."""

from __future__ import annotations

import signal

import pytest

from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.supervision.child import (
    LONGEST_DELAY,
    SERVED_DELAYS,
    STABLE_SECONDS,
    ChildEnd,
    GiveUp,
    RestartPolicy,
    StartAgain,
)

KILLED = -signal.SIGKILL


def delays(*ends: ChildEnd) -> list[float]:
    policy = RestartPolicy()
    found = [policy.judge(end) for end in ends]
    return [each.delay for each in found if isinstance(each, StartAgain)]


@pytest.mark.parametrize("status", [KILLED, -signal.SIGABRT, -signal.SIGSEGV, 70, 75])
def test_a_server_that_died_while_it_served_is_started_at_once(status: int) -> None:
    assert RestartPolicy().judge(ChildEnd(status, served=3600.0)) == StartAgain(0.0, ())


@pytest.mark.parametrize("status", [0, 130, 143])
def test_a_server_that_was_told_to_end_is_not_started_again(status: int) -> None:
    assert RestartPolicy().judge(ChildEnd(status, served=3600.0)) == GiveUp(status)


@pytest.mark.parametrize("status", [ExitStatus.FAILED, ExitStatus.BAD_SETTING])
def test_what_an_operator_must_mend_ends_the_first_start(status: int) -> None:
    assert RestartPolicy().judge(ChildEnd(status)) == GiveUp(status)


@pytest.mark.parametrize("status", [ExitStatus.FAILED, ExitStatus.BAD_SETTING])
def test_a_fault_after_service_is_tried_again(status: int) -> None:
    policy = RestartPolicy()
    policy.judge(ChildEnd(KILLED, served=5.0))
    assert isinstance(policy.judge(ChildEnd(status)), StartAgain)


def test_pauses_grow_while_it_dies_before_it_serves() -> None:
    found = delays(*[ChildEnd(KILLED)] * 12)
    assert found[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_DELAY]
    assert found[-1] == LONGEST_DELAY


def test_pauses_stay_short_while_it_serves_each_time() -> None:
    assert delays(*[ChildEnd(KILLED, served=1.0)] * 6) == [*SERVED_DELAYS, *SERVED_DELAYS[-1:] * 2]


def test_stable_service_makes_up_for_earlier_deaths() -> None:
    stable = ChildEnd(KILLED, served=STABLE_SECONDS)
    assert delays(ChildEnd(KILLED), ChildEnd(KILLED), stable, stable) == [1.0, 2.0, 0.0, 0.0]


def test_models_that_were_at_work_are_left_out_until_it_is_stable() -> None:
    policy = RestartPolicy()
    ends = [
        ChildEnd(KILLED, served=1.0, busy=("one",)),
        ChildEnd(KILLED, busy=("two", "one")),
        ChildEnd(KILLED, served=2.0),
        ChildEnd(KILLED, served=STABLE_SECONDS, busy=("three",)),
    ]
    found = [policy.judge(end) for end in ends]
    left_out = [each.left_out for each in found if isinstance(each, StartAgain)]
    assert left_out == [("one",), ("one", "two"), ("one", "two"), ("three",)]

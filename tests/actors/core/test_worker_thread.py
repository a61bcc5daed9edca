"""Tests of the heartbeat that tells a silent job from one that works or rests."""

from __future__ import annotations

import pytest

from greenroom.actors.core.worker_thread import (
    FRESH_DEATHS,
    MAX_REPLACED,
    MAX_REPLACED_FOR_CODE,
    SILENT_TICKS,
    DeviceReport,
    Heartbeat,
    Replacements,
    Verdict,
)
from greenroom.engine.resources.device_errors import Crash


def checks_until_silent(heartbeat: Heartbeat, most: int = 5 * SILENT_TICKS) -> int | None:
    return next((number for number in range(most) if heartbeat.check()), None)


def test_a_job_that_never_tells_anything_is_silent_after_so_many_looks() -> None:
    assert checks_until_silent(Heartbeat()) == SILENT_TICKS


def test_every_sign_of_life_begins_the_count_anew() -> None:
    heartbeat = Heartbeat()
    for _ in range(3):
        heartbeat.beat()
        assert checks_until_silent(heartbeat, SILENT_TICKS) is None
    assert heartbeat.check()


def test_a_job_that_rests_may_be_silent_as_long_as_it_likes() -> None:
    heartbeat = Heartbeat()
    heartbeat.beat()
    heartbeat.pause()
    assert checks_until_silent(heartbeat) is None
    heartbeat.beat()
    assert checks_until_silent(heartbeat) == SILENT_TICKS


DYING = DeviceReport(Crash.DEVICE)
WORN = DeviceReport(Crash.DEVICE, computed=True)


def test_a_job_without_a_crash_costs_no_thread() -> None:
    replacements = Replacements()
    assert replacements.judge(DeviceReport(), fresh=True) is Verdict.LEND_AGAIN
    assert replacements.judge(DeviceReport(computed=True), fresh=False) is Verdict.LEND_AGAIN
    assert (replacements.replaced, replacements.loss) == (0, None)


def test_the_seventeenth_death_is_one_too_many_and_says_so_from_then_on() -> None:
    replacements = Replacements()
    verdicts = [replacements.judge(WORN, fresh=False) for _ in range(MAX_REPLACED)]
    assert verdicts == [Verdict.REPLACE] * 16
    assert replacements.loss is None
    assert replacements.judge(WORN, fresh=False) is Verdict.LOST
    reason = replacements.loss
    assert reason is not None
    assert replacements.judge(DYING, fresh=True) is Verdict.LOST
    assert (replacements.replaced, replacements.loss) == (MAX_REPLACED, reason)


def test_two_fresh_threads_that_die_in_a_row_are_enough() -> None:
    replacements = Replacements()
    assert replacements.judge(WORN, fresh=False) is Verdict.REPLACE
    assert replacements.judge(DYING, fresh=True) is Verdict.REPLACE
    assert replacements.judge(DYING, fresh=True) is Verdict.LOST
    assert f"{FRESH_DEATHS} fresh threads" in (replacements.loss or "")


@pytest.mark.parametrize("between", [DeviceReport(computed=True), WORN])
def test_what_a_thread_has_computed_in_between_shows_that_the_device_is_there(between: DeviceReport) -> None:
    replacements = Replacements()
    for _ in range(MAX_REPLACED // 2):
        assert replacements.judge(DYING, fresh=True) is Verdict.REPLACE
        assert replacements.judge(between, fresh=True) is not Verdict.LOST


def test_a_load_that_fails_for_reasons_of_its_own_shows_nothing_of_the_device() -> None:
    replacements = Replacements()
    replacements.judge(DYING, fresh=True)
    assert replacements.judge(DeviceReport(), fresh=True) is Verdict.LEND_AGAIN
    assert replacements.judge(DYING, fresh=True) is Verdict.LOST


def test_too_little_memory_is_a_matter_of_what_was_asked_and_no_dead_device() -> None:
    replacements = Replacements()
    verdicts = [replacements.judge(DeviceReport(Crash.MEMORY), fresh=True) for _ in range(MAX_REPLACED)]
    assert set(verdicts) == {Verdict.REPLACE}
    assert replacements.judge(DeviceReport(Crash.MEMORY), fresh=True) is Verdict.LOST


def test_a_refusal_of_the_system_is_enough_by_itself() -> None:
    replacements = Replacements()
    assert replacements.judge(DeviceReport(Crash.REFUSED, computed=True), fresh=False) is Verdict.LOST
    assert replacements.replaced == 0


def test_no_model_s_code_or_files_can_end_a_server_however_often_they_are_asked_for() -> None:
    replacements = Replacements()
    verdicts = [replacements.judge(DeviceReport(Crash.CODE), fresh=True) for _ in range(1000)]
    assert verdicts[:MAX_REPLACED_FOR_CODE] == [Verdict.REPLACE] * MAX_REPLACED_FOR_CODE
    assert set(verdicts[MAX_REPLACED_FOR_CODE:]) == {Verdict.LEND_AGAIN}
    # The remaining replacements suffice to go on after errors of the device.
    left = [replacements.judge(WORN, fresh=False) for _ in range(MAX_REPLACED - MAX_REPLACED_FOR_CODE)]
    assert set(left) == {Verdict.REPLACE}
    assert replacements.judge(DeviceReport(Crash.CODE), fresh=True) is Verdict.LEND_AGAIN
    assert replacements.judge(WORN, fresh=False) is Verdict.LOST


def test_what_comes_to_light_behind_a_crash_counts_if_it_is_worse() -> None:
    crashed = DeviceReport(Crash.CODE, computed=True)
    assert crashed.with_crash(None) == crashed
    assert crashed.with_crash(Crash.REFUSED) == DeviceReport(Crash.REFUSED, computed=True)
    assert DYING.with_crash(Crash.CODE) == DYING
    assert DeviceReport().with_crash(None) == DeviceReport()

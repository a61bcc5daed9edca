"""The silence of a child, by a clock of the tests."""

from __future__ import annotations

import pytest

from greenroom.http.supervision.beat import Beat, Silence, SilenceLimits, parse_beat

SERVING = Beat("serving")


def seconds_until_hung(beat: Beat | None) -> float:
    """Return the seconds after which a child counts as hung whose last sign of life was this one."""
    limits = SilenceLimits()
    silence, now = Silence(limits, 0.0), 0.0
    if beat is not None:
        silence.record(beat)
    while not silence.is_too_long(now):
        now += limits.interval
    return now


@pytest.mark.parametrize(
    ("beat", "seconds"),
    [
        (None, 60.0),
        (Beat("starting"), 60.0),
        (SERVING, 10.0),
        (Beat("serving", importing=True, busy=("qwen3",)), 60.0),
        (Beat("serving", busy=("qwen3",)), 10.0),
        (Beat("ending"), 10.0),
    ],
)
def test_a_silent_child_counts_as_hung_after_the_limit_of_its_stage(
    beat: Beat | None, seconds: float
) -> None:
    assert seconds_until_hung(beat) == seconds


def test_signs_of_life_begin_the_count_anew() -> None:
    silence = Silence(SilenceLimits(), 0.0)
    for second in range(100):
        silence.record(SERVING)
        assert not silence.is_too_long(float(second))


def test_time_in_which_the_watcher_itself_was_stopped_does_not_count() -> None:
    silence = Silence(SilenceLimits(), 0.0)
    silence.record(SERVING)
    assert not silence.is_too_long(36_000.0)
    assert silence.seconds == 2.0


def test_short_limits_are_checked_more_often() -> None:
    assert SilenceLimits().interval == 1.0
    assert SilenceLimits(serving=1.0).interval == pytest.approx(0.1)


def test_a_beat_is_read_as_it_was_sent() -> None:
    beat = Beat("serving", importing=True, busy=("org/name", "zwölf"))
    line = beat.to_line()
    assert line.endswith(b"\n")
    assert parse_beat(line) == beat


def test_a_line_of_many_long_names_still_fits_a_pipe() -> None:
    beat = Beat("serving", busy=tuple(f"{number}" + "n" * 1000 for number in range(50)))
    assert len(beat.to_line()) < 4096


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"null", b'{"stage": "serving"}', b'{"stage": 1, "importing": 0, "busy": []}']
)
def test_the_rest_of_a_line_is_no_beat(line: bytes) -> None:
    assert parse_beat(line) is None

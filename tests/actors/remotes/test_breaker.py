"""The state machine of the breaker, walked at random."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from greenroom.actors.remotes.remote_servers import FAILURES, PAUSES, WINDOW, Breaker

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "succeed", "fail", "leave"]),
        st.integers(0, 5),
        st.sampled_from([0.0, 0.5, 4.9, 5.0, 29.0, 31.0, 61.0]),
    ),
    max_size=60,
)


@settings(max_examples=100)
@given(STEPS)
def test_an_open_breaker_lets_nothing_through_and_a_half_open_one_a_single_request(
    steps: list[tuple[str, int, float]],
) -> None:
    breaker, now = Breaker(), 0.0
    running: dict[int, object] = {}
    probe: int | None = None
    opened_at: float | None = None
    for action, which, wait in steps:
        now += wait
        state = breaker.state(now)
        assert (state == "closed") == (opened_at is None)
        if state == "open":
            assert opened_at is not None
            assert now - opened_at < PAUSES[-1]
            assert not breaker.may_begin(now)
        match action:
            case "begin" if which not in running:
                request = object()
                may = breaker.may_begin(now)
                assert breaker.begin(request, now) == may
                assert may == (state == "closed" or (state == "half_open" and probe is None))
                if may:
                    running[which] = request
                    probe = which if state == "half_open" else probe
            case "succeed" if which in running:
                breaker.succeed(running.pop(which))
                if which == probe:
                    probe = opened_at = None
                    assert breaker.state(now) == "closed"
            case "fail" if which in running:
                breaker.fail(running.pop(which), now, "it failed")
                if which == probe:
                    probe, opened_at = None, now
                    assert breaker.state(now) == "open"
                elif opened_at is None and breaker.state(now) == "open":
                    opened_at = now
            case "leave" if which in running:
                breaker.leave(running.pop(which))
                probe = None if which == probe else probe
        assert 0 <= breaker.seconds_left(now) <= PAUSES[-1]


def test_failures_count_in_a_row_and_within_the_window_alone() -> None:
    breaker = Breaker()
    for at in range(FAILURES):
        breaker.fail(object(), at * WINDOW, "slow")
    assert breaker.state(FAILURES * WINDOW) == "closed"
    for _ in range(FAILURES - 1):
        breaker.fail(object(), 1_000.0, "refused")
    breaker.succeed(object())
    breaker.fail(object(), 1_000.0, "refused")
    assert breaker.state(1_000.0) == "closed"
    for _ in range(FAILURES - 1):
        breaker.fail(object(), 1_000.0, "refused")
    assert (breaker.state(1_000.0), breaker.reason) == ("open", "refused")


def test_each_failed_try_pauses_longer() -> None:
    breaker, now = Breaker(), 0.0
    for _ in range(FAILURES):
        breaker.fail(object(), now, "refused")
    for pause in (*PAUSES, PAUSES[-1]):
        assert breaker.seconds_left(now) == pause
        now += pause
        probe = object()
        assert breaker.begin(probe, now)
        assert not breaker.begin(object(), now)
        breaker.fail(probe, now, "refused")

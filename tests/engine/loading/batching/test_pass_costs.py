"""Tests of the prediction of pass times from smaller passes."""

from __future__ import annotations

from greenroom.engine.loading.invariance_check import PassCosts


def test_a_larger_pass_is_foretold_on_the_line_through_the_two_before_it() -> None:
    costs = PassCosts(0.25)
    assert costs.predict(4) == 1.0
    costs.observe(2, 0.5)
    costs.observe(12, 1.5)
    assert costs.predict(12) == 1.5
    assert costs.predict(22) == 2.5
    assert costs.predict(4) == 1.0
    costs.observe(29, 1.25)
    assert costs.predict(87) == 1.25


def test_a_piece_is_as_long_as_its_time_allows_and_at_least_a_token() -> None:
    costs = PassCosts(0.25)
    assert costs.fitting(29, 1.0) == 4
    assert costs.fitting(3, 1.0) == 3
    assert costs.fitting(29, 0.1) == 1
    assert costs.fitting(1, 0.0) == 1

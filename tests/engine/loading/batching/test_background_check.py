"""Tests of the idle time that a background check waits for before a pass."""

from __future__ import annotations

import pytest

from greenroom.engine.loading.batching import PIECE, BackgroundCheck
from greenroom.engine.loading.invariance_check import InvarianceCheck
from greenroom.tests.support.architectures.architectures import make


@pytest.mark.parametrize(("first_pass", "delay"), [(0.01, 0.05), (PIECE, 5 * PIECE), (2 * PIECE, 20 * PIECE)])
def test_a_longer_pass_waits_for_a_longer_pause(first_pass: float, delay: float) -> None:
    model = make("llama")
    rest = BackgroundCheck(model, InvarianceCheck(model, first_pass=first_pass), "key")
    assert rest.delay == pytest.approx(delay)

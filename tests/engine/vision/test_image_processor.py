"""Arrays of processed images count toward the limit until they are freed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from greenroom.engine.media.images import ResolutionLimit
from greenroom.engine.vision.image_processor import HeldArrays, resolution_limit
from greenroom.schemas.problems import ProblemError


def test_what_others_hold_is_counted_until_they_let_go() -> None:
    held = HeldArrays(100)
    first = held.hold({"pixel_values": np.zeros(60, np.uint8), "sizes": [1, 2]})
    second = held.hold({"pixel_values": np.zeros(40, np.uint8)})
    assert held.nbytes == 100
    with pytest.raises(ProblemError) as caught:
        held.hold({"pixel_values": np.zeros(1, np.uint8)})
    assert (caught.value.problem.status, caught.value.problem.code) == (503, "images_waiting")
    assert caught.value.problem.retry_after
    del first
    assert held.nbytes == 40
    third = held.hold({"pixel_values": np.zeros(60, np.uint8)})
    del second, third
    assert held.nbytes == 0


def test_a_large_image_may_be_held_alone() -> None:
    held = HeldArrays(10)
    assert held.hold({"pixel_values": np.zeros(60, np.uint8)})["pixel_values"].nbytes == 60


@pytest.mark.parametrize(
    ("stated", "limit"),
    [
        ({"max_pixels": 12_544}, ResolutionLimit(area=12_544)),
        ({"size": {"longest_edge": 384}}, ResolutionLimit(384, 384)),
        ({"size": {"longest_edge": 1_000_000}}, ResolutionLimit(area=1_000_000)),
        ({"size": {"height": 336, "width": 448}}, ResolutionLimit(448, 336)),
        ({"size": {"longest_edge": 1}}, ResolutionLimit(area=16 * 1024 * 1024)),
        ({}, ResolutionLimit(area=16 * 1024 * 1024)),
    ],
)
def test_a_size_limits_an_image_only_if_an_image_can_have_it(
    stated: dict[str, Any], limit: ResolutionLimit
) -> None:
    assert resolution_limit(SimpleNamespace(**stated)) == limit

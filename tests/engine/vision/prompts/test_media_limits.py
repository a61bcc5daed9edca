"""Limits of images as processors state them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from greenroom.engine.media.images import ResolutionLimit
from greenroom.engine.vision.image_processor import resolution_limit


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

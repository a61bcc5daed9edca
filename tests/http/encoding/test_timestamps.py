"""Timestamps as text."""

from __future__ import annotations

import pytest

from greenroom.http.encoding.encoding import timestamp


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_700_000_000.25, "2023-11-14T22:13:20.250000Z"),
        (1_700_000_000.000001, "2023-11-14T22:13:20.000001Z"),
        (1_700_000_001, "2023-11-14T22:13:21Z"),
    ],
)
def test_times_are_written_as_rfc_3339_has_them(seconds: float, text: str) -> None:
    assert timestamp(seconds) == text

"""The models that are suggested by memory: every architecture was checked, and every model fits."""

from __future__ import annotations

import json
from pathlib import Path

from greenroom.http.commands.setup import SUGGESTED

ROOT = Path(__file__).resolve().parents[2]
SHARE = 0.85
"""Fraction of the device's usable memory that Greenroom takes."""


def test_each_model_fits_and_its_architecture_was_proved() -> None:
    table = json.loads((ROOT / "engine/loading/batching_table.json").read_text(encoding="utf-8"))
    for memory, (room, models) in SUGGESTED.items():
        gpu = memory * (2 / 3 if memory <= 36 else 3 / 4)
        assert abs(room - gpu * SHARE) < 0.5, memory
        for model in models:
            assert model.architecture in table["architectures"], model
            assert model.gigabytes <= room * 0.85, model
    assert [*SUGGESTED] == [8, 16, 32, 64, 128]


def test_the_page_says_that_they_are_untested() -> None:
    page = (ROOT / "notes" / "which-model.md").read_text(encoding="utf-8")
    assert "**Nobody has run them in Greenroom on such a machine: untested**" in page

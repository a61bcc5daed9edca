"""The table of models by memory in notes/: every architecture was checked, and every model fits."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(
    r"^\|(?: (?P<memory>\d+) GB)? \|(?: (?P<room>[\d.]+) GB)? \| `(?P<model>[\w./-]+)`[^|]*"
    r"\| (?P<weights>[\d.]+) GB \| `(?P<architecture>\w+)` \|$",
    re.MULTILINE,
)
SHARE = 0.85
"""Fraction of the device's usable memory that Greenroom takes."""


def test_each_model_fits_and_its_architecture_was_proved() -> None:
    table = json.loads((ROOT / "engine/loading/batching/table.json").read_text(encoding="utf-8"))
    rows = list(ROW.finditer((ROOT / "notes" / "which-model.md").read_text(encoding="utf-8")))
    assert len(rows) > 10
    memory, room = 0, 0.0
    sizes = []
    for row in rows:
        if row["memory"]:
            memory, room = int(row["memory"]), float(row["room"])
            sizes.append(memory)
            gpu = memory * (2 / 3 if memory <= 36 else 3 / 4)
            assert abs(room - gpu * SHARE) < 0.5, memory
        assert row["architecture"] in table["architectures"], row["model"]
        assert float(row["weights"]) <= room * 0.85, row["model"]
    assert sizes == [8, 16, 32, 64, 128]


def test_the_page_says_that_they_are_untested() -> None:
    page = (ROOT / "notes" / "which-model.md").read_text(encoding="utf-8")
    assert "**Nobody has run them in Greenroom on such a machine: untested**" in page

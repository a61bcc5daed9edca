"""Documented tables of model types and capabilities agree with the program."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import get_args

from greenroom.schemas.models.capabilities import (
    CapabilityRecord,
    ModelType,
    VectorTraits,
    capability_summary,
)

PAGE = (Path(__file__).parents[2] / "notes" / "kinds.md").read_text()


def test_every_kind_has_a_row() -> None:
    kinds, _ = PAGE.split("## What it can do")
    assert re.findall(r"^\| `(\w+)` \|", kinds, re.MULTILINE) == list(get_args(ModelType))


def test_every_field_has_a_row_that_names_its_kinds() -> None:
    said: dict[str, list[str]] = defaultdict(list)
    for kind in get_args(ModelType):
        record = CapabilityRecord(kind, "default", "x", 1, vectors=VectorTraits(1, "mean", normalized=True))
        for field in capability_summary(record):
            said[field].append(kind)
    written = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|", PAGE.split("## What it can do")[1], re.MULTILINE)
    everything = list(get_args(ModelType))
    assert {name: everything if of == "all" else of.split(", ") for name, of in written} == said

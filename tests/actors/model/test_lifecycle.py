"""Model states: their transitions follow one table, which is also documented for operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.actors.model.model import ImpossibleTransition, Lifecycle
from greenroom.schemas.models.lifecycle import TRANSITIONS, ModelState

IDLE, DOWNLOADING, WAITING, LOADING, READY, UNLOADING, ERROR = ModelState


def test_states_follow_the_table_only() -> None:
    life = Lifecycle()
    for step in (WAITING, LOADING, DOWNLOADING, LOADING, READY, UNLOADING, IDLE):
        life.to(step)
    with pytest.raises(ImpossibleTransition, match="idle to ready"):
        life.to(READY)
    assert life.state is IDLE


def test_the_page_for_operators_shows_the_same_table() -> None:
    page = (Path(__file__).parents[3] / "notes" / "actors.md").read_text(encoding="utf-8")
    section = page.partition("## The life of a model\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    shown = {row[0].strip("`"): {name.strip(" `") for name in row[2].split(",")} for row in rows}
    assert shown == {str(state): set(map(str, after)) for state, after in TRANSITIONS.items()}

"""Shares of each pot that clients can take, and those that are left for others, as the notes tell them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from greenroom.actors.core.fair_share import Pot, share_left
from greenroom.actors.responses.run import MAX_BACKGROUND_RUNS
from greenroom.http.guard.json_counter import MAX_HELD
from greenroom.schemas.protocols.download_protocol import MAX_PULLS
from greenroom.schemas.settings.settings import Settings

NOTES = Path(__file__).parents[3] / "notes" / "operate.md"
SIZES = {
    "background responses": MAX_BACKGROUND_RUNS,
    "WebSockets": Settings().max_connections // 4,
    "downloads that requests began": MAX_PULLS,
}


def fill(pot: Pot, client: str) -> int:
    """Take one by one until nothing is left for a client, and return what it holds then."""
    while pot.room(client) > 0:
        pot.take(client)
    return pot.held(client)


@pytest.mark.parametrize("what", SIZES)
def test_the_notes_tell_what_each_client_gets(what: str) -> None:
    pot = Pot(SIZES[what])
    taken = [fill(pot, client) for client in ("key_1", "10.0.0.2#a", "key_3")]
    row = next(line for line in NOTES.read_text().splitlines() if line.startswith(f"| {what} |"))
    size, alone, others = re.split(r" *\| *", row)[2:5]
    assert str(SIZES[what]) in size
    assert [int(number) for number in re.findall(r"\d+", f"{alone} {others}")] == taken


@pytest.mark.parametrize("most", [1, 2, 3, 32, 64, 1_000])
def test_newcomers_find_room_and_nobody_gets_more_than_half_beside_them(most: int) -> None:
    pot = Pot(most)
    fill(pot, "first")
    assert most < 8 or pot.room("second") > 0
    pot.give_back("first", pot.held("first"))
    assert pot.total == 0
    pot.take("second")
    assert fill(pot, "first") <= max(1, most // 2)
    assert pot.held("second#made-up") == 1


def test_bytes_are_shared_as_places_are() -> None:
    assert share_left(MAX_HELD, 0, 0) == 131_250
    assert share_left(100, 50, 50) == 38
    assert share_left(100, 60, 50) == -5
    assert share_left(100, 60, 10) == 15

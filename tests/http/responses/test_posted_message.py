"""Histories kept for a socket are bounded and private to it."""

from __future__ import annotations

from greenroom.http.responses.posted_message import ITEM_LENGTH, MAX_LANES, LocalHistories
from greenroom.schemas.stored import StoredItem, StoredTurn, Turns


def turns(length: int) -> Turns:
    return Turns((StoredTurn((StoredItem("msg_1", "x" * (length - ITEM_LENGTH)),)),))


def test_a_lane_keeps_its_latest_response() -> None:
    histories = LocalHistories()
    histories.keep(1, "a", "first", turns(300))
    histories.keep(1, "b", "other", turns(300))
    histories.keep(1, "a", "second", turns(400))
    assert [histories.find(1, name) is not None for name in ("first", "second", "other")] == [
        False,
        True,
        True,
    ]
    assert histories.find(2, "second") is None
    assert histories.length == 700


def test_a_lane_goes_on_after_its_response_was_evicted() -> None:
    histories = LocalHistories()
    histories.keep(1, "a", "first", turns(300))
    histories.evict(1, "first")
    histories.evict(1, "first")
    assert histories.length == 0
    histories.keep(1, "a", "second", turns(300))
    assert histories.find(1, "second") == turns(300)


def test_a_socket_has_so_many_lanes() -> None:
    histories = LocalHistories()
    for number in range(MAX_LANES + 2):
        histories.keep(1, str(number), f"resp_{number}", turns(300))
    assert [number for number in range(MAX_LANES + 2) if histories.find(1, f"resp_{number}") is None] == [
        0,
        1,
    ]


def test_the_least_recently_used_is_forgotten_for_others() -> None:
    histories = LocalHistories(max_length=1000)
    histories.keep(1, "", "old", turns(400))
    histories.keep(2, "", "used", turns(400))
    assert histories.find(1, "old") is not None
    histories.keep(3, "", "new", turns(400))
    found = [histories.find(*key) is not None for key in ((1, "old"), (2, "used"), (3, "new"))]
    assert found == [True, False, True]
    histories.keep(3, "", "too large", turns(1001))
    assert histories.length == 400
    histories.forget(1)
    histories.forget(1)
    assert histories.length == 0

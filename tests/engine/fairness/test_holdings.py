"""Counts of batch rows: addresses take precedence over keys, since a client can invent keys."""

from __future__ import annotations

from greenroom.engine.resources.fair_queue import Holdings


def test_made_up_keys_make_no_client_seem_to_hold_less_than_another_address() -> None:
    held = Holdings([("here", 3), *((f"there#{key}", 1) for key in range(4))])
    assert max(["here", "there#0"], key=held.of) == "there#0"
    assert min(["here", "there#new"], key=held.of) == "here"
    assert min(["here", "there#new", "nobody"], key=held.of) == "nobody"


def test_of_an_address_the_key_that_holds_most_is_told() -> None:
    held = Holdings([("there#many", 1), ("there#many", 2), ("there#one", 1), ("there", 2)])
    assert sorted(["there#many", "there#one", "there"], key=held.of) == ["there#one", "there", "there#many"]

"""Answers that are heard while they are made: clients have equal shares, and no request stands still."""

from __future__ import annotations

from collections import Counter

from greenroom.engine.fairness.fair_turns import FairTurns


def serve(turns: FairTurns[str], number: int, cost: float = 1) -> list[str]:
    """Give that many turns; return whose they were."""
    served = []
    for _ in range(number):
        served.append(next(turns.in_turn()))
        turns.charge(served[-1], cost)
    return served


def test_requests_of_one_client_go_on_one_after_the_other() -> None:
    turns: FairTurns[str] = FairTurns()
    for request in ("first", "second", "third"):
        turns.add("client", request)
    assert serve(turns, 7) == ["first", "second", "third"] * 2 + ["first"]
    turns.add("client", "new")
    turns.remove("second")
    turns.remove("unknown")
    assert serve(turns, 4) == ["third", "first", "new", "third"]
    assert len(turns) == 3


def test_made_up_keys_share_what_their_address_has() -> None:
    turns: FairTurns[str] = FairTurns()
    for number in range(15):
        turns.add(f"greedy#{number}", f"greedy {number}")
    turns.add("modest", "modest")
    served = Counter(serve(turns, 300))
    assert served["modest"] == 150
    assert {served[f"greedy {number}"] for number in range(15)} == {10}


def test_a_turn_that_takes_long_is_paid_for() -> None:
    turns: FairTurns[str] = FairTurns()
    turns.add("slow", "slow")
    turns.add("quick", "quick")
    served: Counter[str] = Counter()
    for _ in range(110):
        request = next(turns.in_turn())
        turns.charge(request, 10 if request == "slow" else 1)
        served[request] += 1
    assert served == {"slow": 10, "quick": 100}


def test_who_cannot_go_on_keeps_the_first_place() -> None:
    turns: FairTurns[str] = FairTurns()
    turns.add("a", "waits for memory")
    turns.add("b", "goes on")
    for _ in range(5):
        assert list(turns.in_turn()) == ["waits for memory", "goes on"]
        turns.charge("goes on", 1)


def test_nobody_owes_anything_once_all_have_gone() -> None:
    turns: FairTurns[str] = FairTurns()
    turns.add("a", "first")
    turns.add("b", "second")
    turns.charge("second", 1000)
    for request in ("first", "second"):
        turns.remove(request)
    turns.add("b", "third")
    turns.add("a", "fourth")
    assert next(turns.in_turn()) == "third"

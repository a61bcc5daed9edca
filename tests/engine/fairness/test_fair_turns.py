"""Fairness of streamed requests: clients have equal shares, and no request starves."""

from __future__ import annotations

from collections import Counter

from greenroom.engine.fairness.fair_turns import FairTurns


def serve(turns: FairTurns[str], number: int, cost: float = 1) -> list[str]:
    """Serve a number of slices; return the request of each."""
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
    turns.remove("second")
    turns.remove("unknown")
    assert serve(turns, 4) == ["third", "first"] * 2
    assert len(turns) == 2
    assert turns.clear() == ["third", "first"]
    assert len(turns) == 0


def test_whoever_comes_late_has_every_second_turn_until_it_has_had_as_much() -> None:
    turns: FairTurns[str] = FairTurns()
    long = [f"long {number}" for number in range(32)]
    for request in long:
        turns.add("client", request)
    serve(turns, 64)
    turns.add("client", "short")
    assert Counter(serve(turns, 4))["short"] == 2
    turns.remove("short")
    assert Counter(serve(turns, 64)) == dict.fromkeys(long, 2)


def test_a_stream_of_short_ones_leaves_the_long_ones_half_of_the_turns() -> None:
    turns: FairTurns[str] = FairTurns()
    for request in ("long", "also long"):
        turns.add("client", request)
    serve(turns, 2)
    served: Counter[str] = Counter()
    for number in range(100):
        turns.add("client", f"short {number}")
        for request in serve(turns, 2):
            served[request.rstrip("0123456789 ")] += 1
            if request.startswith("short"):
                turns.remove(request)
    assert served == {"short": 100, "long": 50, "also long": 50}


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


def test_a_short_turn_waits_for_no_round_of_long_ones() -> None:
    costs = {"short": 1.0, **{f"long {number}": 100.0 for number in range(32)}}
    turns: FairTurns[str] = FairTurns(costs.__getitem__)
    for number in range(32):
        turns.add(f"client {number}", f"long {number}")
    turns.charge("long 0", 100)
    turns.add("client", "short")
    served: list[str] = []
    for _ in range(240):
        served.append(next(turns.in_turn()))
        turns.charge(served[-1], costs[served[-1]])
    assert served[:4] == ["short"] * 4
    # Not for ever: it goes first until it has had its share of the time.
    assert 100 < served.count("short") < 210
    assert {count for name, count in Counter(served).items() if name != "short"} <= {1, 2, 3}

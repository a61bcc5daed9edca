"""Counts of batch rows: addresses take precedence over keys, since a client can invent keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import attrs

from greenroom.engine.resources.fair_queue import FairQueue, Holdings


def test_made_up_keys_make_no_client_seem_to_hold_less_than_another_address() -> None:
    held = Holdings([("here", 3), *((f"there#{key}", 1) for key in range(4))])
    assert max(["here", "there#0"], key=held.of) == "there#0"
    assert min(["here", "there#new"], key=held.of) == "here"
    assert min(["here", "there#new", "nobody"], key=held.of) == "nobody"


def test_of_an_address_the_key_that_holds_most_is_told() -> None:
    held = Holdings([("there#many", 1), ("there#many", 2), ("there#one", 1), ("there", 2)])
    assert sorted(["there#many", "there#one", "there"], key=held.of) == ["there#one", "there", "there#many"]


@attrs.frozen
class Streamed:
    """A request whose results are streamed."""

    client: str
    name: str


class Turns:
    """A fair queue of streamed requests, by their names.

    Args:
        costs: Expected cost of each request's next turn.
    """

    def __init__(self, costs: Mapping[str, float] | None = None) -> None:
        expected = None if costs is None else (lambda request: costs[request.name])
        self._queue: FairQueue[Streamed] = FairQueue(expected=expected)
        self._requests: dict[str, Streamed] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, client: str, name: str) -> None:
        self._requests[name] = Streamed(client, name)
        self._queue.add(self._requests[name])

    def remove(self, name: str) -> None:
        self._queue.remove(self._requests.get(name, Streamed("", name)))

    def clear(self) -> list[str]:
        return [request.name for request in self._queue.clear()]

    def in_turn(self) -> Iterator[str]:
        return (request.name for request in self._queue.in_turn())

    def charge(self, name: str, cost: float) -> None:
        self._queue.charge([self._requests[name]], cost)


def serve(turns: Turns, number: int, cost: float = 1) -> list[str]:
    """Serve a number of slices; return the request of each."""
    served = []
    for _ in range(number):
        served.append(next(turns.in_turn()))
        turns.charge(served[-1], cost)
    return served


def test_requests_of_one_client_go_on_one_after_the_other() -> None:
    turns = Turns()
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
    turns = Turns()
    long = [f"long {number}" for number in range(32)]
    for request in long:
        turns.add("client", request)
    serve(turns, 64)
    turns.add("client", "short")
    assert Counter(serve(turns, 4))["short"] == 2
    turns.remove("short")
    assert Counter(serve(turns, 64)) == dict.fromkeys(long, 2)


def test_a_stream_of_short_ones_leaves_the_long_ones_half_of_the_turns() -> None:
    turns = Turns()
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
    turns = Turns()
    for number in range(15):
        turns.add(f"greedy#{number}", f"greedy {number}")
    turns.add("modest", "modest")
    served = Counter(serve(turns, 300))
    assert served["modest"] == 150
    assert {served[f"greedy {number}"] for number in range(15)} == {10}


def test_a_turn_that_takes_long_is_paid_for() -> None:
    turns = Turns()
    turns.add("slow", "slow")
    turns.add("quick", "quick")
    served: Counter[str] = Counter()
    for _ in range(110):
        request = next(turns.in_turn())
        turns.charge(request, 10 if request == "slow" else 1)
        served[request] += 1
    assert served == {"slow": 10, "quick": 100}


def test_who_cannot_go_on_keeps_the_first_place() -> None:
    turns = Turns()
    turns.add("a", "waits for memory")
    turns.add("b", "goes on")
    for _ in range(5):
        assert list(turns.in_turn()) == ["waits for memory", "goes on"]
        turns.charge("goes on", 1)


def test_nobody_owes_anything_once_all_have_gone() -> None:
    turns = Turns()
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
    turns = Turns(costs)
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

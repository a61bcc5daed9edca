"""Serving order of the fair queue: shares are per address, and per key within an address."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

from greenroom.engine.fairness.fair_queue import FairQueue, WaitingPrompt

NameSource = Callable[[], str]


def serve(queue: FairQueue, turns: int, *sources: NameSource, cost: Callable[[int], float]) -> Counter[int]:
    """Serve sources that always have one prompt waiting, under changing names; return each one's total."""
    waiting = [source() for source in sources]
    served: Counter[int] = Counter()
    for _ in range(turns):
        prompts = [WaitingPrompt(name, name, 100) for name in waiting]
        chosen = queue.choose(prompts)
        queue.charge([waiting[chosen]], cost(chosen))
        served[chosen] += int(cost(chosen))
        waiting[chosen] = sources[chosen]()
    return served


def always(name: str) -> NameSource:
    return lambda: name


def fresh_keys(address: str, offset: str = "") -> NameSource:
    numbers: Iterator[int] = itertools.count()
    return lambda: f"{address}#{offset}{next(numbers)}"


def even(_: int) -> float:
    return 1


def test_a_new_key_for_each_request_gets_no_more_than_the_share_of_its_address() -> None:
    served = serve(FairQueue(), 200, fresh_keys("mallory"), always("alice#key"), cost=even)
    assert abs(served[0] - served[1]) <= 1


def test_many_keys_of_one_address_share_what_one_gets_elsewhere() -> None:
    many = [always(f"proxy#{number}") for number in range(8)]
    served = serve(FairQueue(), 320, always("alice"), *many, cost=even)
    assert 159 <= served[0] <= 161
    assert all(19 <= served[number] <= 21 for number in range(1, 9))


def test_two_keys_of_one_address_share_evenly() -> None:
    served = serve(FairQueue(), 100, always("proxy#a"), always("proxy#b"), cost=even)
    assert served == {0: 50, 1: 50}


def test_inside_an_address_a_new_key_each_time_gets_no_more_than_one_that_stays() -> None:
    served = serve(FairQueue(), 200, fresh_keys("proxy"), always("proxy#stays"), cost=even)
    assert abs(served[0] - served[1]) <= 1


def test_time_is_shared_and_not_turns() -> None:
    costs = [100, 1]
    served = serve(FairQueue(), 2000, always("long"), always("short"), cost=lambda index: costs[index])
    assert abs(served[0] - served[1]) <= 100


def test_chunks_of_several_clients_are_paid_by_all_of_them() -> None:
    queue = FairQueue()
    prompts = [WaitingPrompt(name, name, 10) for name in ("a#1", "a#2", "b")]
    assert queue.choose(prompts) == 0
    queue.charge(["a#1", "a#2"], 2)
    assert queue.choose(prompts) == 2
    queue.charge(["b"], 2)
    assert queue.choose(prompts) in (0, 1)


def test_names_are_forgotten() -> None:
    queue = FairQueue()
    for number in range(1000):
        name = f"address{number % 500}#key{number}"
        queue.choose([WaitingPrompt(name, name, 1), WaitingPrompt("other", "other", 1)])
        queue.charge([name], 1)
        queue.choose([WaitingPrompt("other", "other", 1)])
        queue.charge(["other"], 1)
    assert queue.known_names <= 8


def test_who_was_away_has_nothing_saved_up() -> None:
    queue = FairQueue()
    busy = WaitingPrompt("busy", "a", 1000)
    for _ in range(50):
        queue.choose([busy])
        queue.charge(["busy"], 10)
    both = [busy, WaitingPrompt("new", "b", 1000)]
    turns = []
    for _ in range(20):
        turns.append(both[queue.choose(both)].client)
        queue.charge([turns[-1]], 10)
    assert 9 <= turns.count("new") <= 11


def test_of_one_conversation_only_the_oldest_counts() -> None:
    first, second, other = (
        WaitingPrompt("c", "a", 100),
        WaitingPrompt("c", "a", 10),
        WaitingPrompt("c", "b", 50),
    )
    queue, chosen = FairQueue(), set()
    for _ in range(6):
        chosen.add(queue.choose([first, second, other]))
        queue.charge(["c"], 1)
    assert chosen == {0, 2}


def test_behind_an_idle_time_all_are_newcomers() -> None:
    queue = FairQueue()
    large, small = WaitingPrompt("large", "a", 8000), WaitingPrompt("small", "b", 10)
    for waiting in ([large, small], [small]):
        queue.charge([waiting[queue.choose(waiting)].client], waiting[0].remaining)
    queue.forget()
    assert serve(queue, 20, always("large"), always("new"), cost=even) == {0: 10, 1: 10}

"""Serving order of the fair queue: shares are per address, and per key within an address."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

import attrs

from greenroom.engine.resources.fair_queue import FairQueue

NameSource = Callable[[], str]


@attrs.define(eq=False)
class Prompt:
    """A prompt that waits for prefill."""

    client: str
    conversation: str = attrs.field(default=attrs.Factory(lambda self: self.client, takes_self=True))
    remaining: int = 100


def prompt_queue(*prompts: Prompt) -> FairQueue[Prompt]:
    """Return a queue with these prompts."""
    queue: FairQueue[Prompt] = FairQueue(
        remaining=lambda prompt: prompt.remaining, conversation=lambda prompt: prompt.conversation
    )
    for prompt in prompts:
        queue.add(prompt)
    return queue


def chosen(queue: FairQueue[Prompt]) -> Prompt:
    prompt = queue.choose()
    assert prompt is not None
    return prompt


def serve(
    queue: FairQueue[Prompt], turns: int, *sources: NameSource, cost: Callable[[int], float]
) -> Counter[int]:
    """Serve sources that always have one prompt waiting, under changing names; return each one's total."""
    waiting = [Prompt(source()) for source in sources]
    for prompt in waiting:
        queue.add(prompt)
    served: Counter[int] = Counter()
    for _ in range(turns):
        first = queue.choose(waiting)
        assert first is not None
        index = waiting.index(first)
        queue.charge([first], cost(index))
        queue.remove(first)
        served[index] += int(cost(index))
        waiting[index] = Prompt(sources[index]())
        queue.add(waiting[index])
    return served


def always(name: str) -> NameSource:
    return lambda: name


def fresh_keys(address: str, offset: str = "") -> NameSource:
    numbers: Iterator[int] = itertools.count()
    return lambda: f"{address}#{offset}{next(numbers)}"


def even(_: int) -> float:
    return 1


def test_a_new_key_for_each_request_gets_no_more_than_the_share_of_its_address() -> None:
    served = serve(prompt_queue(), 200, fresh_keys("mallory"), always("alice#key"), cost=even)
    assert abs(served[0] - served[1]) <= 1


def test_many_keys_of_one_address_share_what_one_gets_elsewhere() -> None:
    many = [always(f"proxy#{number}") for number in range(8)]
    served = serve(prompt_queue(), 320, always("alice"), *many, cost=even)
    assert 159 <= served[0] <= 161
    assert all(19 <= served[number] <= 21 for number in range(1, 9))


def test_two_keys_of_one_address_share_evenly() -> None:
    served = serve(prompt_queue(), 100, always("proxy#a"), always("proxy#b"), cost=even)
    assert served == {0: 50, 1: 50}


def test_inside_an_address_a_new_key_each_time_gets_no_more_than_one_that_stays() -> None:
    served = serve(prompt_queue(), 200, fresh_keys("proxy"), always("proxy#stays"), cost=even)
    assert abs(served[0] - served[1]) <= 1


def test_time_is_shared_and_not_turns() -> None:
    costs = [100, 1]
    served = serve(prompt_queue(), 2000, always("long"), always("short"), cost=lambda index: costs[index])
    assert abs(served[0] - served[1]) <= 100


def test_chunks_of_several_clients_are_paid_by_all_of_them() -> None:
    first, second, third = (Prompt(name) for name in ("a#1", "a#2", "b"))
    queue = prompt_queue(first, second, third)
    assert chosen(queue) is first
    queue.charge([first, second], 2)
    assert chosen(queue) is third
    queue.charge([third], 2)
    assert chosen(queue) in (first, second)


def test_names_are_forgotten() -> None:
    other = Prompt("other")
    queue = prompt_queue(other)
    for number in range(1000):
        prompt = Prompt(f"address{number % 500}#key{number}")
        queue.add(prompt)
        chosen(queue)
        queue.charge([prompt], 1)
        queue.remove(prompt)
        chosen(queue)
        queue.charge([other], 1)
    assert queue.known_names <= 8


def test_who_was_away_has_nothing_saved_up() -> None:
    busy, new = Prompt("busy"), Prompt("new")
    queue = prompt_queue(busy)
    for _ in range(50):
        queue.charge([chosen(queue)], 10)
    queue.add(new)
    turns = []
    for _ in range(20):
        turns.append(chosen(queue))
        queue.charge([turns[-1]], 10)
    assert 9 <= turns.count(new) <= 11


def test_of_one_conversation_only_the_oldest_counts() -> None:
    first, second, other = Prompt("c", "a", 100), Prompt("c", "a", 10), Prompt("c", "b", 50)
    queue, served = prompt_queue(first, second, other), set()
    for _ in range(6):
        served.add(chosen(queue))
        queue.charge([first], 1)
    assert served == {first, other}


def test_of_a_client_the_shortest_prompt_and_the_oldest_alternate() -> None:
    oldest, middle, shortest = (Prompt("c", str(length), length) for length in (100, 50, 10))
    other = Prompt("other")
    queue, served = prompt_queue(oldest, middle, shortest, other), list[Prompt]()
    for _ in range(8):
        served.append(chosen(queue))
        queue.charge([served[-1]], 1)
    assert [prompt for prompt in served if prompt is not other] == [oldest, shortest, oldest, shortest]


def test_behind_an_idle_time_all_are_newcomers() -> None:
    large, small = Prompt("large", remaining=8000), Prompt("small", remaining=10)
    queue = prompt_queue(large, small)
    for _ in range(2):
        prompt = chosen(queue)
        queue.charge([prompt], 8000)
        queue.remove(prompt)
    assert serve(queue, 20, always("large"), always("new"), cost=even) == {0: 10, 1: 10}


def test_a_request_is_placed_by_its_order() -> None:
    queue: FairQueue[Prompt] = FairQueue(
        remaining=lambda prompt: prompt.remaining, order=lambda prompt: prompt.conversation
    )
    late, early = Prompt("c", "2"), Prompt("c", "1")
    queue.add(late)
    queue.add(early)
    assert chosen(queue) is early

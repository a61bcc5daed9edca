"""Batching of rows into forward passes."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from greenroom.engine.encoding.row_queue import MAX_PADDING, Batch, Job, RowQueue
from greenroom.engine.encoding.rows import PreparedRows, Row
from greenroom.tests.support.engines.embedders import embedding_request


def job(request_id: str, *lengths: int, client: str = "") -> Job:
    """Return a request with rows of these lengths."""
    rows = tuple(Row(np.zeros(length, np.int32)) for length in lengths)
    return Job(embedding_request([], request_id, client), PreparedRows(rows))


def take(queue: RowQueue, max_rows: Callable[[int], int], free_padding: float = 0) -> Batch | None:
    """Return the next pass, or None."""
    first = queue.choose()
    return None if first is None else queue.take(first, max_rows, free_padding)


def taken(queue: RowQueue, tokens: int) -> list[Batch]:
    """Return all passes up to the end, under a budget of tokens."""
    passes = []
    while (batch := take(queue, lambda width: tokens // width)) is not None:
        passes.append(batch)
        for done, _ in batch.members:
            if not done.waiting:
                queue.remove(done.request.id)
    return passes


def test_every_row_is_computed_once_in_passes_that_are_mostly_full() -> None:
    source, queue = random.Random(0), RowQueue()
    jobs = [job(f"{at}", *(source.randint(1, 200) for _ in range(100))) for at in range(50)]
    for added in jobs:
        queue.add(added)
    passes = taken(queue, 4_000)
    computed = sorted((done.request.id, index) for batch in passes for done, index in batch.members)
    assert computed == sorted((added.request.id, index) for added in jobs for index in range(100))
    padded = sum(batch.width * len(batch.members) for batch in passes)
    tokens = sum(sum(added.lengths) for added in jobs)
    assert padded <= tokens * 1.1
    assert len(passes) <= tokens / 4_000 * 1.5


def test_requests_are_given_away_in_the_order_in_which_it_is_their_clients_turn() -> None:
    queue = RowQueue()
    for name, client in (("1", "one"), ("2", "two"), ("3", "one"), ("4", "three")):
        queue.add(job(name, *[10] * 50, client=client))
    for _ in range(2):
        take(queue, lambda width: 8)
    assert [left.request.id for left in queue.clear()] == ["4", "1", "3", "2"]
    assert not len(queue)
    assert queue.clear() == []


def test_padding_of_a_pass_is_bounded() -> None:
    queue = RowQueue()
    queue.add(job("long", 4_000, 100))
    queue.add(job("short", *[10] * 50))
    for batch in taken(queue, 8_000):
        lengths = [done.lengths[index] for done, index in batch.members]
        assert batch.padding == sum(batch.width - length for length in lengths)
        assert batch.padding <= max(0, MAX_PADDING * batch.width * len(lengths))


def test_a_small_request_is_computed_within_two_passes_beside_a_large_one() -> None:
    queue = RowQueue()
    queue.add(job("large", *[100] * 5_000))
    for _ in range(3):
        take(queue, lambda width: 20)
    queue.add(job("small", 5))
    computed = [
        done.request.id
        for _ in range(2)
        if (batch := take(queue, lambda width: 20))
        for done, _ in batch.members
    ]
    assert "small" in computed
    assert "large" in computed


def test_a_large_request_goes_on_beside_a_stream_of_small_ones() -> None:
    queue = RowQueue()
    large = job("large", *[100] * 200)
    queue.add(large)
    for at in range(20):
        queue.add(job(f"small {at}", 50))
        take(queue, lambda width: 10)
    assert len(large.waiting) <= 100


def test_clients_take_turns() -> None:
    queue = RowQueue()
    for at in range(20):
        queue.add(job(f"busy {at}", *[100] * 50, client="10.0.0.1"))
    quiet = job("quiet", *[100] * 40, client="10.0.0.2")
    queue.add(quiet)
    for _ in range(8):
        take(queue, lambda width: 10)
    assert not quiet.waiting


def test_rows_that_could_not_be_computed_wait_again() -> None:
    queue, added = RowQueue(), job("one", 5, 9, 7, 1)
    queue.add(added)
    batch = take(queue, lambda width: 3, 10)
    assert batch is not None
    assert [added.lengths[index] for _, index in batch.members] == [9, 7, 5]
    queue.put_back(batch)
    assert [added.lengths[index] for index in added.waiting] == [1, 5, 7, 9]
    assert added.tokens_left == 22


def test_whose_last_request_was_large_competes_as_a_newcomer_after_an_idle_time() -> None:
    queue = RowQueue()
    queue.add(job("large", 4_000, client="before"))
    queue.add(job("small", 10, client="other"))
    assert len(taken(queue, 4_000)) == 2
    queue.add(job("before", *[10] * 10, client="before"))
    queue.add(job("new", *[10] * 10, client="new"))
    passes = [take(queue, lambda width: 1) for _ in range(10)]
    rows = [done for batch in passes if batch for done, _ in batch.members]
    assert [done.request.client for done in rows].count("before") == 5

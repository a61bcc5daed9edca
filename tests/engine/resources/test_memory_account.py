"""Memory account under several threads: charges never exceed the limit."""

from __future__ import annotations

import random
import threading

from hypothesis import given
from hypothesis import strategies as st

from greenroom.engine.resources.memory_account import MemoryAccount, Share

LIMIT = 1000


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 1200)), max_size=60))
def test_the_sum_never_exceeds_the_limit(moves: list[tuple[int, bool, int]]) -> None:
    account = MemoryAccount(kv_limit=LIMIT)
    shares = [Share(account) for _ in range(3)]
    for index, running, nbytes in moves:
        share = shares[index]
        before = share.running
        if running:
            taken = share.charge_running(nbytes)
            assert share.running == (nbytes if taken else before)
        else:
            allowed = share.charge_cached(nbytes)
            assert share.cached == allowed <= nbytes
        assert sum(one.running + one.cached for one in shares) <= LIMIT
    assert account.statistics().peak <= LIMIT


def test_threads_do_not_overtake_each_other() -> None:
    account = MemoryAccount(kv_limit=LIMIT)

    def work(seed: int) -> None:
        share, choose = Share(account), random.Random(seed)
        for _ in range(2000):
            share.charge_running(choose.randrange(600))
            share.charge_cached(choose.randrange(600))
        share.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statistics = account.statistics()
    assert LIMIT // 2 < statistics.peak <= LIMIT
    assert (statistics.running, statistics.cached) == (0, 0)


def test_weights_are_charged_and_leave_less_for_caches() -> None:
    account = MemoryAccount(limit=LIMIT, kv_limit=500)
    one, other = Share(account), Share(account)
    assert one.charge_weights(700) is None
    assert other.charge_weights(400) == 300
    assert one.available() == 300
    assert one.charge_running(300)
    assert not one.charge_running(301)
    assert other.charge_weights(1) == 0


def test_who_has_waited_longer_is_not_overtaken() -> None:
    account = MemoryAccount(kv_limit=LIMIT)
    busy, waiting = Share(account), Share(account)
    assert busy.charge_running(600)
    waiting.reserve(800)
    assert not busy.charge_running(700, new=True)
    assert busy.charge_running(700)  # what runs may grow
    assert busy.charge_running(100)
    assert waiting.charge_running(800, new=True)
    waiting.cancel_reservation()
    assert busy.charge_running(200, new=True)


def test_other_models_are_asked_to_evict() -> None:
    account = MemoryAccount(kv_limit=LIMIT)
    idle, busy = Share(account), Share(account)
    assert idle.charge_cached(900) == 900
    asked: list[int] = []
    idle.on_eviction_request = lambda: asked.append(idle.eviction_request)
    assert not busy.charge_running(400)
    assert busy.request_eviction(300, 0.0)
    assert asked == [300]
    assert idle.charge_cached(600) == 600
    assert busy.charge_running(400)
    assert idle.charge_cached(0) == 0
    assert not busy.request_eviction(300, 0.0)


def test_cached_prefixes_give_way_to_weights_that_are_charged() -> None:
    account = MemoryAccount(limit=100)
    idle, new = Share(account), Share(account)
    calls = list[int]()
    idle.on_eviction_request = lambda: calls.append(idle.eviction_request)
    assert idle.charge_weights(20) is None
    assert idle.charge_cached(60) == 60
    assert new.charge_weights(20) is None
    assert calls == []  # all of it fits
    assert new.charge_weights(50) is None
    assert calls == [30]

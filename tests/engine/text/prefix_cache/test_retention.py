"""Tests of which cached prefixes stay: side requests do not displace a session, and a new session does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import mlx.core as mx
import pytest

from greenroom.engine.text.prefix_cache.memory_tier import MemoryTier, Retained, RetentionPolicy, pack
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.prompt_features import PrefixKey
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.engines.text_engines import Driver, prefilled_cache
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.texts.prompts import TURN_END, ask, words

KEY = PrefixKey()
TITLES = 16
SESSION = 500
"""Tokens of a session's first prompt."""


@pytest.fixture(autouse=True)
def _exact_buffers() -> Iterator[None]:
    """Recycle no buffers, which may be twice as large as what is in them, by chance."""
    before = mx.set_cache_limit(0)
    yield
    mx.set_cache_limit(before)


@attrs.define
class Prefix:
    """A cached prefix, as the policy sees it."""

    end: int
    used_at: int = 0
    kv_bytes: int = 1
    continued: bool = False


CHANGES = {"lfm2": {"hidden_size": 128, "num_attention_heads": 4, "block_dim": 128, "block_ff_dim": 384}}
"""Wider than others' tests need: beside a narrow state, short prompts would take too few bytes."""


def begin_session(engine: Driver) -> list[int]:
    """Answer the first turn of a session; return the prompt of its second turn."""
    prompt = [*words(SESSION, 1), TURN_END]
    answer, _ = ask(engine, prompt)
    return [*prompt, *answer, TURN_END, *words(40, 2), TURN_END]


def session_bytes(folder: Path, turns: int) -> int:
    """Return the bytes that a session of that many turns takes in a cache without limits."""
    cache = PrefixCache(1 << 30)
    engine = Driver(folder, prefix_cache=cache)
    prompt = begin_session(engine)
    for turn in range(turns - 1):
        answer, _ = ask(engine, prompt)
        prompt += [*answer, TURN_END, *words(40, 3 + turn), TURN_END]
    return cache.memory.nbytes


@pytest.mark.parametrize("kind", [*deep_only("qwen3"), "lfm2"])
@pytest.mark.parametrize("turns", [1, *deep_only(3)])
@pytest.mark.deep
def test_side_requests_leave_the_session_in_a_cache_of_little_more(
    tiny_model: TinyModel, kind: str, turns: int
) -> None:
    folder = tiny_model(kind, **CHANGES.get(kind, {}))
    budget = session_bytes(folder, turns) * 12 // 10
    cached = {}
    for titles in (0, TITLES):
        cache = PrefixCache(budget)
        engine = Driver(folder, prefix_cache=cache)
        prompt = begin_session(engine)
        for turn in range(turns - 1):
            answer, _ = ask(engine, prompt)
            prompt += [*answer, TURN_END, *words(40, 3 + turn), TURN_END]
        for seed in range(titles):
            ask(engine, [*words(34 + seed, 100 + seed), TURN_END])
        assert not titles or cache.memory.evictions >= titles // 2
        cached[titles] = ask(engine, prompt)[1]
    assert cached[TITLES] == cached[0] >= SESSION


def test_a_new_session_displaces_one_that_is_no_longer_used(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    engine = Driver(folder, prefix_cache=PrefixCache(session_bytes(folder, 2) * 12 // 10))
    ask(engine, begin_session(engine))
    new = [*words(SESSION, 50), TURN_END]
    answer, _ = ask(engine, new)
    assert ask(engine, [*new, *answer, *words(30, 51)])[1] >= SESSION


@pytest.mark.deep
def test_short_chats_are_cached_beside_a_session_that_fills_the_cache(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    cache = PrefixCache(1 << 20)
    for end in (130, 260, 390, 520, 650):
        prompt = words(end, 1)
        cache.insert(KEY, prompt, prefilled_cache(folder, prompt), None, continued=True)
    assert cache.memory.evictions
    chat = words(50, 2)
    for length in (20, 30, 40, 50):
        cache.insert(KEY, chat[:length], prefilled_cache(folder, chat[:length]), None)
        assert cache.match(KEY, [*chat[:length], 5], stateful=False).usable == length


def test_of_equal_lengths_the_one_used_last_stays() -> None:
    policy = RetentionPolicy()
    first, second = (Prefix(100, policy.use()) for _ in range(2))
    assert policy.value(first, first.used_at) < policy.value(second, second.used_at)
    first.used_at = policy.use()
    assert policy.value(first, first.used_at) > policy.value(second, second.used_at)


def test_a_session_outlives_short_prompts_until_they_are_longer_than_it_together() -> None:
    policy = RetentionPolicy()
    session = Prefix(1000, policy.use(), continued=True)
    inserted = 0
    while True:
        policy.insert(100)
        title = Prefix(100, policy.use())
        if policy.value(title, title.used_at) > policy.value(session, session.used_at):
            break
        inserted += 100
    assert 2 * session.end < inserted <= 3 * session.end


def test_a_new_session_is_worth_more_than_a_continued_one_of_its_length() -> None:
    policy = RetentionPolicy()
    old = Prefix(1000, policy.use(), continued=True)
    policy.insert(1000)
    new = Prefix(1000, policy.use())
    assert policy.value(new, new.used_at) > policy.value(old, old.used_at)


def test_the_latest_leaves_are_newcomers_up_to_a_part_of_the_budget() -> None:
    policy = RetentionPolicy()
    leaves = [Prefix(10, policy.use(), kv_bytes=10) for _ in range(5)]
    assert policy.newcomers(leaves, 160) == {id(leaf) for leaf in leaves[-2:]}
    assert policy.newcomers([Prefix(10, policy.use(), kv_bytes=100)], 160) == set()


def test_of_salts_that_clients_make_up_only_what_is_cached_stays() -> None:
    memory, packed = MemoryTier(8 * 1024), pack(range(8))
    keys = [PrefixKey(salt=str(number)) for number in range(3_000)]
    held = memory.tree(keys[0])  # as by a restoration that begins
    for key in (*keys, keys[0]):
        memory.measure()
        tree = held if key == keys[0] else memory.tree(key)
        assert memory.insert(tree, packed, lambda start, stop: (mx.zeros((1, 1, stop - start, 32)),), None)
        assert memory.match(key, packed).length == 8
    assert 0 < len(memory._trees) == memory.nodes <= 8
    assert held in memory._trees.values()


class CountingPolicy(RetentionPolicy):
    calls = 0

    def value(self, node: Retained, used_at: int) -> int:
        self.calls += 1
        return super().value(node, used_at)


def test_all_of_a_large_cache_is_evicted_without_ranking_it_anew_for_each_prefix() -> None:
    memory, zeros = MemoryTier(1 << 30), mx.zeros((1, 1, 8, 1))
    memory._retention = policy = CountingPolicy()
    for number in range(200):
        packed = pack([number % 50, *range(number // 50 * 3, number // 50 * 3 + 7)])
        memory.insert(memory.tree(KEY), packed, lambda start, stop: (zeros[:, :, start:stop],), None)
    assert memory.nodes > 200
    policy.calls = 0
    memory.evict_to(0)
    assert memory.nodes == memory.nbytes == 0
    assert policy.calls < 1_000

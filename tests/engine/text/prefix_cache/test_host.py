"""Host tier: prefixes that an unloaded model leaves in main memory for its next load."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.engine.kv_cache import caches
from greenroom.engine.resources.held_memory import HeldPiece
from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.engine.text.prefix_cache.host_tier import HostTier
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.prompt_features import PrefixKey
from greenroom.tests.support.engines.text_engines import Driver, loaded
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.texts.continued_conversations import begin_conversation, continue_conversation
from greenroom.tests.support.texts.prompts import TURN_END, ask, words

GENEROUS = 1 << 30


class Life:
    """An engine from load to unload, whose account outlives it."""

    def __init__(
        self, model: Path, account: MemoryAccount, stamp: str = "same", limit: int = GENEROUS
    ) -> None:
        self.tier = HostTier(account.held, "model", stamp, limit)
        self.account = account
        self.driver = Driver(model, prefix_cache=PrefixCache(GENEROUS, self.tier), account=account)

    def ask(self, prompt: Sequence[int], count: int = 12) -> tuple[list[int], int]:
        """Return the answer's tokens, and the number of cached prompt tokens."""
        return ask(self.driver, prompt, count)

    def end(self) -> int:
        """Unload the model; return the bytes that stay held."""
        self.driver.engine.close()
        assert self.account.statistics().cached == 0
        return self.account.held.nbytes


@pytest.mark.parametrize("kind", ["qwen3", "gemma3", "lfm2"])
def test_a_conversation_goes_on_after_an_unload(tiny_model: TinyModel, kind: str) -> None:
    folder, account = tiny_model(kind), MemoryAccount()
    first = Life(folder, account)
    prompt = begin_conversation(first)
    held = first.end()
    assert account.statistics().held == held > 0
    second = Life(folder, account)
    fork = continue_conversation(second, folder, prompt)
    assert second.tier.hits == 2
    assert account.held.nbytes < held  # what has come back is not in memory twice
    assert second.end() > held
    third = Life(folder, account)
    assert third.ask(fork)[1] >= 201
    third.tier.drop()
    assert third.end() == 0


@pytest.mark.parametrize("kind", ["qwen3", "lfm2"])
def test_a_hang_up_during_a_restoration_loses_nothing_of_the_prefix(tiny_model: TinyModel, kind: str) -> None:
    folder, account = tiny_model(kind), MemoryAccount()
    prompt = [*words(300, 1), TURN_END]
    life = Life(folder, account)
    life.ask(prompt)
    held = life.end()
    cache = PrefixCache(GENEROUS, HostTier(account.held, "model", "same", GENEROUS))
    hang_ups = 0
    for steps in itertools.count(1):
        empty = caches.new_cache(loaded(folder)[0])
        restoration = cache.restore(PrefixKey(), [*prompt, 5], empty, 512)
        for _ in range(steps):
            restoration.advance(1, force=True)
        if restoration.is_done:
            break
        restoration.close()
        hang_ups += 1
    assert hang_ups > 2
    assert restoration.restored.tokens == len(prompt) - 1
    assert account.held.nbytes < held  # what has come back is not in memory twice


def test_what_is_held_depends_on_nothing_of_the_thread_or_the_device(tiny_model: TinyModel) -> None:
    folder, account = tiny_model("qwen3"), MemoryAccount()
    mx.clear_cache()
    life = Life(folder, account)
    life.ask(words(300, 1))
    held = life.end()
    del life
    gc.collect()  # and not within
    mx.clear_cache()
    before = mx.get_active_memory()
    assert held > 0
    assert sum(piece.nbytes for piece in account.held.refuse("model")) == held
    assert mx.get_active_memory() == before


def test_files_that_change_or_an_operators_wish_leave_nothing(tiny_model: TinyModel) -> None:
    folder, account = tiny_model("qwen3"), MemoryAccount()
    life = Life(folder, account)
    life.ask(words(300, 1))
    assert life.end() > 0
    other = Life(folder, account, "changed")
    assert account.held.nbytes == 0
    assert other.ask(words(300, 1))[1] == 0
    account.held.refuse("model")
    assert other.end() == 0
    assert Life(folder, account, "changed").ask(words(300, 1))[1] == 0


def test_no_more_is_held_than_the_limit_and_what_was_used_last_stays(tiny_model: TinyModel) -> None:
    folder, account = tiny_model("qwen3"), MemoryAccount()
    life = Life(folder, account)
    for seed in range(8):
        life.ask(words(100, seed), 2)
    whole = life.end()
    life = Life(folder, account, "other", whole // 2)
    for seed in range(8):
        life.ask(words(100, seed), 2)
    assert whole // 4 < life.end() <= whole // 2
    life = Life(folder, account, "other")
    assert life.ask([*words(100, 7), 1])[1] >= 99
    assert life.ask([*words(100, 0), 1])[1] == 0
    life.end()


def test_what_was_made_before_a_change_is_not_held_under_the_later_stamp() -> None:
    held = MemoryAccount().held
    held.claim("model", "files of today")
    held.hold("model", "a", HeldPiece("a", 10), "files of yesterday")
    held.hold("model", "b", HeldPiece("b", 10), "files of today")
    assert held.claim("model", "files of today") == ["b"]


def test_weights_and_caches_of_others_drop_what_is_held_and_are_never_refused_for_it() -> None:
    account = MemoryAccount(limit=100, kv_limit=50)
    for name in "abc":
        account.held.hold("model", name, HeldPiece(name, 10))
    share = Share(account)
    assert share.charge_weights(75) is None
    assert account.held.claim("model", "") == []  # another stamp than none
    for name in "abc":
        account.held.hold("model", name, HeldPiece(name, 10))
    assert account.held.claim("model", "") == ["b", "c"]  # the oldest went
    assert share.charge_running(10)
    assert account.held.claim("model", "") == ["c"]
    assert share.charge_running(25)
    assert account.held.nbytes == 0
    assert share.charge_weights(101) == 100


moves = st.lists(
    st.tuples(
        st.sampled_from(["weights", "running", "cached", "hold"]), st.integers(0, 2), st.integers(0, 60)
    )
)


@given(moves)
def test_what_is_held_changes_no_answer_of_the_account_and_the_sum_keeps_the_limit(
    steps: list[tuple[str, int, int]],
) -> None:
    holding, empty = MemoryAccount(100, 70), MemoryAccount(100, 70)
    shares = [[Share(account) for _ in range(3)] for account in (holding, empty)]
    for number, (kind, index, nbytes) in enumerate(steps):
        if kind == "hold":
            holding.held.hold("owner", str(number), HeldPiece(number, nbytes))
        else:
            answers = [getattr(each[index], f"charge_{kind}")(nbytes) for each in shares]
            assert answers[0] == answers[1]
        known = holding.statistics()
        over = known.weights + known.running + known.cached - 100  # caches give way to weights, but later
        assert known.held <= max(0, -over)
        assert known.held + known.running + known.cached <= 70

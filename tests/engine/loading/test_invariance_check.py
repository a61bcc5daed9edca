"""Tests that the batch-invariance check finds models that padding changes, and accepts the others."""

from __future__ import annotations

import itertools
from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.kv_cache.caches import (
    Batching,
    can_batch,
    new_cache,
    new_mergeable_cache,
    prefills_alone,
    restrict,
)
from greenroom.engine.loading.batching_table import CheckResults
from greenroom.engine.loading.invariance_check import ROWS, TOKENS, InvarianceCheck, PassCosts
from greenroom.tests.support.architectures.architectures import make
from greenroom.tests.support.engines.schedules import soak_only

PLENTY = 600.0

PREFILL_WRONG = ("mamba", "nemotron_h", "rwkv7")
DECODE_WRONG = ("afm7", "minimax_m3_vl", *soak_only("recurrent_gemma"))
RIGHT = ("llama", "gemma3_text", "falcon_h1")


def proved(model: Any) -> CheckResults:
    """Return the results of a check without a time limit."""
    check = InvarianceCheck(model)
    check.run(PLENTY)
    assert check.results.complete
    return check.results


@pytest.mark.parametrize(
    "name",
    [
        *PREFILL_WRONG,
        *soak_only("jamba", "olmo_hybrid", "baichuan_m1", "bailing_moe_linear", "longcat_flash_ngram"),
    ],
)
def test_prompts_that_padding_changes_are_found(name: str) -> None:
    found = proved(make(name))
    assert (found.prefill, found.decode) == (False, True)
    assert "prefilled together" in found.reason


@pytest.mark.parametrize("name", DECODE_WRONG)
def test_steps_that_padding_changes_are_found(name: str) -> None:
    found = proved(make(name))
    assert found.batching == Batching(False, False, found.reason)
    assert "decoded together" in found.reason


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_what_is_right_passes_in_any_precision(name: str, dtype: mx.Dtype) -> None:
    model = make(name)
    model.set_dtype(dtype)
    assert proved(model).batching == Batching()


def test_code_that_fails_with_several_rows_computes_each_alone() -> None:
    check = InvarianceCheck(make("gpt_bigcode"))
    check.run(PLENTY)
    assert check.results.decode is False
    assert "ValueError" in check.results.reason
    assert check.failed


@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
def test_a_restricted_model_makes_caches_that_no_batch_takes_until_it_is_no_more(name: str) -> None:
    model: Any = make(name)
    layers = [type(layer) for layer in new_cache(model)]
    restrict(model, Batching(False, True))
    assert prefills_alone(model)
    assert can_batch(new_cache(model))
    for _ in range(2):
        restrict(model, Batching(False, False))
        assert not can_batch(new_cache(model))
        assert can_batch(new_mergeable_cache(model))
        assert [type(layer) for layer in new_cache(model)] == layers
    restrict(model, Batching())
    assert not prefills_alone(model)
    assert can_batch(new_cache(model))
    assert [type(layer) for layer in new_cache(model)] == layers


class WrongInAnyBatch:
    """A model that reads each token as the next id in any batch of several rows, padded or not."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.make_cache = lambda: new_cache(model)

    def __call__(self, tokens: mx.array, cache: Any) -> Any:
        return self._model(tokens + (1 if len(tokens) > 1 else 0), cache=cache)


def test_what_is_wrong_in_any_batch_is_found() -> None:
    found = proved(WrongInAnyBatch(make("llama")))
    assert found.decode is False
    assert "decoded together" in found.reason


class TickingByTokens:
    """A simulated machine and its clock, on which every token of a pass takes a second."""

    def __init__(self, model: Any) -> None:
        self.now = 0.0
        self.passes: list[int] = []
        self._model = model
        self.make_cache = lambda: new_cache(model)

    def __call__(self, tokens: mx.array, cache: Any) -> Any:
        assert tokens.shape[0] <= ROWS
        assert tokens.shape[1] <= TOKENS
        self.now += tokens.size
        self.passes.append(tokens.size)
        return self._model(tokens, cache=cache)

    def check(self, results: CheckResults | None = None) -> InvarianceCheck:
        return InvarianceCheck(self, results, 1.0, lambda: self.now)


@pytest.mark.parametrize("seconds", [0.0, 10.0, 40.0, 150.0, 175.0])
def test_no_pass_begins_that_would_take_longer_than_there_is_time(seconds: float) -> None:
    machine = TickingByTokens(make("llama"))
    check = machine.check()
    check.run(seconds)
    assert not check.results.complete
    assert not check.results.batching.prefill
    assert seconds - 108 <= machine.now <= seconds


def test_what_is_over_goes_on_where_it_ended() -> None:
    seconds = 20.0
    machine = TickingByTokens(make("llama"))
    check = machine.check()
    for turn in itertools.count(1):
        check.run(seconds)
        if check.predict(seconds) > seconds:
            break
        assert machine.now <= turn * seconds
    assert check.results == CheckResults(None, True)
    assert check.predict(seconds) == 108
    for _ in range(2):
        check.advance(seconds)
        check.run(seconds)
    assert check.results == CheckResults(True, True)
    whole = TickingByTokens(make("llama"))
    whole.check().run(PLENTY)
    assert sum(machine.passes) == sum(whole.passes)


def test_what_was_found_is_not_computed_again_and_what_was_dropped_is() -> None:
    machine = TickingByTokens(make("llama"))
    whole = machine.check()
    whole.run(PLENTY)
    rest = TickingByTokens(make("llama"))
    check = rest.check(CheckResults(None, True))
    check.run(PLENTY)
    assert check.results == whole.results == CheckResults(True, True)
    prefilling = [108, 4] * 2
    assert rest.passes == [1, 2, 18, 27, 1, 1, *prefilling]
    machine.passes.clear()
    check = machine.check()
    check.run(20.0)
    check.pause()
    check.run(PLENTY)
    assert check.results == whole.results
    again = [1, 2, 18, 27, 3, 3, 3, 3, 1, 1, *prefilling]
    assert machine.passes[-len(again) :] == again
    assert len(machine.passes) > len(again)


class OutOfMemory:
    """A model whose second pass runs out of memory."""

    def __init__(self, model: Any) -> None:
        self.passes = 0
        self._model = model
        self.make_cache = lambda: new_cache(model)

    def __call__(self, tokens: mx.array, cache: Any) -> Any:
        self.passes += 1
        if self.passes == 2:
            raise MemoryError
        return self._model(tokens, cache=cache)


def test_what_no_pass_ends_for_is_alone_for_this_time_only() -> None:
    model = OutOfMemory(make("llama"))
    check = InvarianceCheck(model)
    check.run(PLENTY)
    assert (check.results.decode, check.failed, model.passes) == (False, True, 2)


def test_a_larger_pass_is_foretold_on_the_line_through_the_two_before_it() -> None:
    costs = PassCosts(0.25)
    assert costs.predict(4) == 1.0
    costs.observe(2, 0.5)
    costs.observe(12, 1.5)
    assert costs.predict(12) == 1.5
    assert costs.predict(22) == 2.5
    assert costs.predict(4) == 1.0
    costs.observe(29, 1.25)
    assert costs.predict(87) == 1.25


def test_a_piece_is_as_long_as_its_time_allows_and_at_least_a_token() -> None:
    costs = PassCosts(0.25)
    assert costs.fitting(29, 1.0) == 4
    assert costs.fitting(3, 1.0) == 3
    assert costs.fitting(29, 0.1) == 1
    assert costs.fitting(1, 0.0) == 1

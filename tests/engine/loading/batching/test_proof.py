"""A short proof at load finds what computes padded rows otherwise, and says nothing of what does not."""

from __future__ import annotations

import itertools
from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.kv_cache.batching import Batching, prefills_alone, restrict
from greenroom.engine.kv_cache.caches import can_batch, new_cache
from greenroom.engine.loading.batching.proof import prove
from greenroom.tests.support.architectures import make
from greenroom.tests.support.schedules import soak_only

PLENTY = 600.0

PREFILL_WRONG = ("mamba", "nemotron_h", "rwkv7")
DECODE_WRONG = ("afm7", "minimax_m3_vl")
RIGHT = ("llama", "gemma3_text", "falcon_h1")


@pytest.mark.parametrize(
    "name",
    [
        *PREFILL_WRONG,
        *soak_only("jamba", "olmo_hybrid", "baichuan_m1", "bailing_moe_linear", "recurrent_gemma"),
    ],
)
def test_prompts_that_padding_changes_are_found(name: str) -> None:
    batching, complete = prove(make(name), PLENTY)
    assert complete
    assert (batching.prefill, batching.decode) == (False, True)
    assert "prefilled together" in batching.reason


@pytest.mark.parametrize("name", DECODE_WRONG)
def test_steps_that_padding_changes_are_found(name: str) -> None:
    batching, complete = prove(make(name), PLENTY)
    assert complete
    assert (batching.prefill, batching.decode) == (False, False)
    assert "decoded together" in batching.reason


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_what_is_right_passes_in_any_precision(name: str, dtype: mx.Dtype) -> None:
    model = make(name)
    model.set_dtype(dtype)
    assert prove(model, PLENTY) == (Batching(), True)


def test_code_that_fails_with_several_rows_computes_each_alone() -> None:
    batching, complete = prove(make("gpt_bigcode"), PLENTY)
    assert complete
    assert not batching.decode
    assert "ValueError" in batching.reason


class Ticking:
    """A clock that a pass moves on by a second: it is read when one begins and when it has ended."""

    def __init__(self) -> None:
        self.passes = 0
        self._reads = itertools.count()

    def __call__(self) -> float:
        reads = next(self._reads)
        self.passes = reads // 2
        return float(self.passes)


@pytest.mark.parametrize(("seconds", "decode"), [(2.5, False), (7.5, True)])
def test_a_proof_ends_with_its_time_and_what_is_not_proved_is_alone(seconds: float, decode: bool) -> None:
    clock = Ticking()
    batching, complete = prove(make("llama"), seconds, clock)
    assert not complete
    assert clock.passes <= seconds + 1
    assert (batching.prefill, batching.decode) == (False, decode)


@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
def test_a_restricted_model_makes_caches_that_no_batch_takes(name: str) -> None:
    model: Any = make(name)
    layers = [type(layer) for layer in new_cache(model)]
    restrict(model, Batching(False, True))
    assert prefills_alone(model)
    assert can_batch(new_cache(model))
    restrict(model, Batching(False, False))
    assert not can_batch(new_cache(model))
    assert [type(layer) for layer in new_cache(model)] == layers


class TickingByTokens:
    """A machine on which every token of a pass takes a second, and the clock that tells."""

    def __init__(self, model: Any) -> None:
        self.now = 0.0
        self._model = model
        self.make_cache = lambda: new_cache(model)

    def __call__(self, tokens: mx.array, cache: Any) -> Any:
        self.now += tokens.size
        return self._model(tokens, cache=cache)


@pytest.mark.parametrize("seconds", [10.0, 40.0, 100.0])
def test_no_pass_begins_that_would_take_longer_than_there_is_time(seconds: float) -> None:
    machine = TickingByTokens(make("llama"))
    batching, complete = prove(machine, seconds, lambda: machine.now)
    assert not complete
    assert not batching.prefill
    assert machine.now <= seconds

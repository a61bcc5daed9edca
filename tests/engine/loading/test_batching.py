"""Tests of the idle time that a background check waits for before a pass."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Batching
from greenroom.engine.loading.batching import PIECE, BackgroundCheck
from greenroom.engine.loading.batching_patches import patch_for_batching
from greenroom.engine.loading.batching_table import TABLE, CheckResults, as_entry, digest_of
from greenroom.engine.loading.invariance_check import InvarianceCheck, distance
from greenroom.engine.vision.open_vision_engine import load_vision_lazily
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.architectures.architectures import make, names
from greenroom.tests.support.architectures.batching_table import prove_architecture
from greenroom.tests.support.architectures.metal_arithmetic import in_4_bits, metal_arithmetic
from greenroom.tests.support.engines.schedules import deep_only, soak_only
from greenroom.tests.support.models.tiny_vision_kinds import VISION_KINDS


@pytest.mark.parametrize(("first_pass", "delay"), [(0.01, 0.05), (PIECE, 5 * PIECE), (2 * PIECE, 20 * PIECE)])
def test_a_longer_pass_waits_for_a_longer_pause(first_pass: float, delay: float) -> None:
    model = make("llama")
    rest = BackgroundCheck(model, InvarianceCheck(model, first_pass=first_pass), "key")
    assert rest.delay == pytest.approx(delay)


ROW_LIMITS = (8, 32, 64)

PLENTY = 1e9

SOUND = (
    *(("qwen3_moe", 8), ("gemma3_text", 32), ("falcon_h1", 64)),
    *(("deepseek_v3", 8), ("nemotron_h", 32), ("baichuan_m1", 64)),
)
"""Architectures, each with a limit of rows; the long run has all with all."""
DEEP = 16
"""Number of layers that amplify a difference."""

UNSOUND = (
    "nemotron_h",
    "mamba",
    "jamba",
    "rwkv7",
    "recurrent_gemma",
    "olmo_hybrid",
    "bailing_moe_linear",
    "baichuan_m1",
    "longcat_flash_ngram",
    "afm7",
    "minimax_m3_vl",
)
"""Architectures that are wrong without our patches; all but the last are patched when loaded."""

BY_ROUTING = "dbrx"
"""Excluded architecture: its experts are separate matrices, whose row counts depend on the padding."""

TABLED = [
    name
    for name, entry in json.loads(TABLE.read_text())["architectures"].items()
    if entry["prefill"] and name != BY_ROUTING
]
"""Architectures that the table lists as correct, with our patches."""

ALL_SOUND = {(name, limit) for name in TABLED for limit in ROW_LIMITS}


def proved(model: Any, row_limit: int) -> CheckResults:
    """Return the results of a check on a device with that row limit."""
    check = InvarianceCheck(model)
    with metal_arithmetic(row_limit):
        check.run(PLENTY)
    assert not check.failed, check.results.reason
    return check.results


def patched(name: str) -> Any:
    model = make(name)
    patch_for_batching(model)
    return model


def logits_behind(model: Any, prompts: list[list[int]]) -> mx.array:
    """Return the logits of the first row's next token after a single pass over the prompts."""
    cache = caches.new_cache(model)
    if len(prompts) > 1:
        cache = caches.merge([cache, *(caches.new_cache(model) for _ in prompts[1:])])
    model(mx.array(prompts), cache=cache)
    logits: mx.array = model(mx.array([prompt[-1:] for prompt in prompts]), cache=cache)[0, -1]
    return logits


def test_a_row_alone_is_apart_from_the_same_row_three_times() -> None:
    model = in_4_bits(make("llama", num_hidden_layers=DEEP))
    prompt = list(range(100, 112))
    with metal_arithmetic(32):
        apart = distance(logits_behind(model, [prompt] * 3), logits_behind(model, [prompt]))
    assert apart > 0.03


@pytest.mark.parametrize("row_limit", [32, *soak_only(*(limit for limit in range(8, 65) if limit != 32))])
@pytest.mark.deep
def test_a_deep_model_is_not_refused(row_limit: int) -> None:
    model = in_4_bits(make("llama", num_hidden_layers=DEEP))
    assert proved(model, row_limit).batching == Batching()


@pytest.mark.parametrize(
    "sound", [*SOUND[::2], *deep_only(*SOUND[1::2]), *soak_only(*sorted(ALL_SOUND - {*SOUND}))]
)
def test_what_is_right_is_not_refused(sound: tuple[str, int]) -> None:
    name, row_limit = sound
    assert proved(in_4_bits(patched(name)), row_limit).batching == Batching()


@pytest.mark.parametrize(
    "kind", ["qwen3_vl", *soak_only(*(kind for kind in VISION_KINDS if kind != "qwen3_vl"))]
)
@pytest.mark.deep
def test_a_model_that_sees_is_not_refused(tiny_vision_model: Callable[..., Path], kind: str) -> None:
    model = load_vision_lazily(tiny_vision_model(kind), Settings())
    in_4_bits(model.model)
    for row_limit in ROW_LIMITS:
        assert proved(model, row_limit).batching == Batching(), row_limit


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "nemotron_h"])
def test_what_is_right_in_16_bits_is_not_refused(name: str) -> None:
    model = patched(name)
    model.set_dtype(mx.bfloat16)
    assert proved(model, 32).batching == Batching()


@pytest.mark.parametrize("row_limit", [32, *soak_only(8, 64)])
@pytest.mark.parametrize(
    "name", [*UNSOUND[::3], *deep_only(*(name for name in UNSOUND if name not in UNSOUND[::3]))]
)
def test_what_is_wrong_without_its_patches_is_refused(name: str, row_limit: int) -> None:
    found = proved(in_4_bits(make(name)), row_limit)
    assert found.complete
    assert not found.batching.prefill


ENTRIES = json.loads(TABLE.read_text(encoding="utf-8"))["architectures"]

FEW = ("llama", "mamba")
"""One plain and one patched architecture; the long run covers all."""


def test_it_has_every_architecture_with_its_code_as_it_is_installed() -> None:
    assert sorted(ENTRIES) == names()
    for name, entry in ENTRIES.items():
        module = importlib.import_module(f"mlx_lm.models.{name}").Model.__module__
        digest = digest_of(module.rpartition(".")[2])
        assert entry["digest"] == digest, f"{name} has changed: run make batching-table"


@pytest.mark.parametrize("name", [*FEW, *soak_only(*(name for name in ENTRIES if name not in FEW))])
def test_it_says_what_a_proof_says(name: str) -> None:
    digest, batching = prove_architecture(name)
    proved = as_entry(batching)
    known = {key: ENTRIES[name][key] for key in ("prefill", "decode")}
    assert (digest, {key: proved[key] for key in known}) == (ENTRIES[name]["digest"], known)

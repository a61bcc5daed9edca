"""Quantized keys and values: batch operations, and their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.quantization import BatchedQuantizedCache, QuantizedCache, QuantizedLayer
from greenroom.engine.loading.load_model import load_model
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.schedules import (
    OVERLAPPING,
    ScheduledRequest,
    check_answers,
    deep_only,
    run_schedule,
    scheduled_requests,
)
from greenroom.tests.support.engines.text_engines import Driver, expected, loaded, quantized
from greenroom.tests.support.models.tiny_models import CONFIGS, make_weights
from greenroom.tests.support.servers.http_servers import fetch, serving
from greenroom.tests.support.texts.prompts import ask, words

TinyModel = Callable[..., Path]
KINDS = ("qwen3", "gemma3", "lfm2")
BITS = (8, 4)
HEADS, WIDTH = 2, 32
LENGTHS = st.sampled_from([0, 1, 5, 40, 255, 256, 257])
"""Numbers of tokens around the growth steps of caches."""


def numbers(tokens: int, seed: int) -> mx.array:
    """Return keys or values `[1, heads, tokens, width]`."""
    drawn = np.random.default_rng(seed).normal(size=(1, HEADS, tokens, WIDTH))
    return mx.array(drawn.astype(np.float32))


def plain(bits: int, keys: mx.array) -> QuantizedCache:
    cache = QuantizedCache(bits, WIDTH)
    if keys.shape[2]:
        cache.update_and_fetch(keys, -keys)
    return cache


def dequantized(packed: Sequence[mx.array], group_size: int, bits: int) -> mx.array:
    numbers, scales, biases = packed
    if not numbers.size:  # which MLX refuses
        return mx.zeros((*numbers.shape[:-1], scales.shape[-1] * group_size))
    return mx.dequantize(numbers, scales, biases, group_size, bits)


def unpacked(layer: QuantizedLayer) -> np.ndarray[Any, Any]:
    """Return the keys that attention computes with; the values must be their mirror image."""
    keys, values = (
        np.array(dequantized(packed, layer.group_size, layer.bits)) for packed in layer.keys_and_values()
    )
    assert np.allclose(keys, -values, atol=1e-5)
    return keys


def rounded(keys: mx.array, bits: int) -> np.ndarray[Any, Any]:
    """Return the numbers rounded to evenly spaced levels in each group, computed with NumPy.

    The grid contains zero and the end that is farther from zero (MLX's affine mode).
    """
    groups = np.array(keys)
    low, high = groups.min(-1, keepdims=True), groups.max(-1, keepdims=True)
    far = np.where(np.abs(low) > np.abs(high), low, high)
    scale = np.maximum((high - low) / (2**bits - 1), 1e-7) * np.where(far == low, 1, -1)
    scale = far / np.where(np.rint(far / scale) == 0, far / scale, np.rint(far / scale))
    levels = np.clip(np.rint((groups - far) / scale), 0, 2**bits - 1)
    return np.asarray(levels * scale + far)


@pytest.mark.parametrize("bits", BITS)
def test_numbers_come_back_as_near_as_their_bits_allow(bits: int) -> None:
    keys = numbers(300, 1)
    cache = plain(bits, keys[:, :, :200])
    for at in range(200, 300):
        cache.update_and_fetch(keys[:, :, at : at + 1], -keys[:, :, at : at + 1])
    assert cache.size() == cache.offset == 300
    assert is_near(unpacked(cache), keys, bits)
    assert cache.trim(50) == 50
    cache.update_and_fetch(keys[:, :, :1], -keys[:, :, :1])
    again = mx.concatenate([keys[:, :, :250], keys[:, :, :1]], axis=2)
    assert is_near(unpacked(cache), again, bits)


def is_near(found: np.ndarray[Any, Any], keys: mx.array, bits: int) -> bool:
    """Return whether two arrays are equal, except for a few numbers halfway between two levels."""
    difference = np.abs(found - rounded(keys, bits))
    return bool(np.mean(difference > 1e-4) < 1e-3 and difference.max() < 16 / 2**bits)


def as_stored(keys: mx.array, bits: int) -> np.ndarray[Any, Any]:
    """Return numbers as a cache stores them, which does not depend on other rows."""
    if not keys.shape[2]:
        return np.array(keys)
    packed = mx.quantize(keys, group_size=WIDTH, bits=bits)
    return np.array(dequantized(packed, WIDTH, bits))


def rows_of(batch: BatchedQuantizedCache) -> list[np.ndarray[Any, Any]]:
    """Return the keys of each row that its mask shows to attention."""
    keys, mask = unpacked(batch), batch.make_mask(1, return_array=True)
    assert mask is not None
    seen = np.array(mask)[:, 0, 0, : batch.size()]
    return [keys[row : row + 1][:, :, seen[row]] for row in range(len(seen))]


@settings(max_examples=10)
@given(data=st.data(), bits=st.sampled_from(BITS), lengths=st.lists(LENGTHS, min_size=2, max_size=4))
def test_rows_stay_what_they_are_whatever_a_batch_does(
    data: st.DataObject, bits: int, lengths: list[int]
) -> None:
    """Rows are compared with their input after every merge, step, padded chunk, extension and filter."""
    known = [numbers(length, seed) for seed, length in enumerate(lengths)]
    batch = QuantizedCache.merge([plain(bits, keys) for keys in known])
    for seed in range(100, 100 + data.draw(st.integers(1, 6))):
        match data.draw(st.sampled_from(["step", "padded", "extend", "filter"])):
            case "step":
                new = mx.concatenate([numbers(1, seed * 10 + row) for row in range(len(known))])
                batch.update_and_fetch(new, -new)
                known = [mx.concatenate([keys, new[row : row + 1]], axis=2) for row, keys in enumerate(known)]
            case "padded":
                counts = [data.draw(st.integers(1, 9)) for _ in known]
                new = mx.concatenate([numbers(max(counts), seed * 10 + row) for row in range(len(known))])
                batch.prepare(lengths=counts, right_padding=[max(counts) - count for count in counts])
                batch.update_and_fetch(new, -new)
                batch.finalize()
                known = [
                    mx.concatenate([keys, new[row : row + 1, :, : counts[row]]], axis=2)
                    for row, keys in enumerate(known)
                ]
            case "extend":
                added = [numbers(data.draw(LENGTHS), seed * 10 + row) for row in range(2)]
                batch.extend(QuantizedCache.merge([plain(bits, keys) for keys in added]))
                known += added
            case "filter":
                rows = data.draw(st.lists(st.integers(0, len(known) - 1), min_size=1, max_size=4))
                batch.filter(mx.array(rows))
                known = [known[row] for row in rows]
        assert np.array(batch.offset).tolist() == [keys.shape[2] for keys in known]
        if not batch.empty():
            for row, (seen, keys) in enumerate(zip(rows_of(batch), known, strict=True)):
                assert np.array_equal(seen, as_stored(keys, bits))
                alone = batch.extract(row)
                assert alone.offset == keys.shape[2]
                if alone.offset:
                    assert np.array_equal(unpacked(alone), seen)


@pytest.mark.parametrize(
    ("kind", "bits"),
    [
        pytest.param("qwen3", 8, marks=pytest.mark.deep),
        ("qwen3", 4),
        pytest.param("gemma3", 4, marks=pytest.mark.deep),
        ("lfm2", 8),
    ],
)
def test_sequences_are_those_of_mlx_lms_quantized_cache(tiny_model: TinyModel, kind: str, bits: int) -> None:
    folder = tiny_model(kind)
    driver = Driver(folder, kv_bits=bits)
    run_schedule(driver, OVERLAPPING)
    check_answers(folder, driver, OVERLAPPING)


@settings(max_examples=3)
@given(
    kind=st.sampled_from(KINDS),
    bits=st.sampled_from(BITS),
    schedule=st.lists(scheduled_requests(), min_size=2, max_size=5),
    chunk_tokens=st.sampled_from([1, 7, 64, 512]),
)
def test_neighbours_and_prefill_chunks_change_nothing(
    tiny_model: TinyModel, kind: str, bits: int, schedule: list[ScheduledRequest], chunk_tokens: int
) -> None:
    folder = tiny_model(kind)
    policy = PrefillPolicy(min_chunk=chunk_tokens, max_chunk=chunk_tokens)
    driver = Driver(folder, policy, kv_bits=bits)
    run_schedule(driver, schedule)
    check_answers(folder, driver, schedule)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["qwen3", *deep_only("gemma3", "lfm2")])
def test_a_cached_prefix_changes_nothing(tiny_model: TinyModel, kind: str) -> None:
    folder = tiny_model(kind)
    engine = Driver(folder, prefix_cache=PrefixCache(1 << 30), kv_bits=8)
    common = words(300, 1)
    for user, known in ((2, 0), (3, 0 if kind != "qwen3" else 300), (4, 300)):
        prompt = [*common, *words(60, user)]
        assert ask(engine, prompt) == (expected(folder, tuple(prompt), 12, 8), known)
    first, second = words(100, 5), words(180, 6)
    requests = [engine.submit(prompt, 40) for prompt in (first, second)]
    engine.run()
    for request, prompt in zip(requests, (first, second), strict=True):
        longer = [*prompt, *engine.tokens[int(request)], *words(20, 7)]
        answer, cached = ask(engine, longer)
        assert answer == expected(folder, tuple(longer), 12, 8)
        assert cached >= len(prompt) + 38


def test_several_answers_share_a_quantized_prompt(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    driver = Driver(folder, kv_bits=8)
    prompt = tuple(words(70, 8))
    driver.submit(prompt, 20, GenerationParameters(temperature=0.0, n=3))
    driver.run()
    assert driver.tokens == [expected(folder, prompt, 20, 8)] * 3


def test_only_full_attention_is_quantized(tiny_model: TinyModel) -> None:
    for kind in KINDS:
        before = [type(layer).__name__ for layer in caches.new_cache(loaded(tiny_model(kind))[0])]
        after = [type(layer).__name__ for layer in caches.new_cache(quantized(tiny_model(kind), 8))]
        assert after == ["QuantizedCache" if name == "KVCache" else name for name in before]


def test_a_token_takes_as_many_bytes_as_its_bits_say(tiny_model: TinyModel) -> None:
    """Each head stores 32 float32 numbers in 32 times the bits, plus a scale and a bias in float32."""
    sizes = []
    for bits in (None, 8, 4):
        model = quantized(tiny_model("qwen3"), bits)
        cache = caches.new_cache(model)
        mx.eval(model(mx.array([words(256, 1)]), cache=cache))
        sizes.append(caches.size_in_bytes(cache) / 256 / (4 * 2 * 2))  # layers, heads, keys and values
    assert sizes == [128, 32 + 8, 16 + 8]


def test_heads_of_an_odd_width_stay_as_they_are(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3", head_dim=40)
    with capture_logs() as logs:
        model = load_model(folder, Settings(kv_bits=8))
    assert [entry["event"] for entry in logs] == ["kv cache stays unquantized"]
    assert type(caches.new_cache(model)[0]).__name__ == "KVCache"


def test_attention_that_cannot_use_it_is_found_out(tmp_path: Path) -> None:
    """GPT-OSS has attention sinks, which mlx-lm's quantized attention does not support."""
    config = {
        **CONFIGS["qwen3"],
        "model_type": "gpt_oss",
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "sliding_window": 32,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_scaling": None,
    }
    make_weights(tmp_path, config)
    with capture_logs() as logs:
        model = load_model(tmp_path, Settings(kv_bits=4))
    assert [entry["event"] for entry in logs] == ["kv cache stays unquantized"]
    assert "sinks" in logs[0]["reason"]
    assert {type(layer).__name__ for layer in caches.new_cache(model)} == {"RotatingKVCache", "KVCache"}


async def test_a_server_with_quantized_caches_answers_as_its_engine(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    prompt = "import os"
    ids = loaded(folder)[1].tokenizer.wrapped.encode(prompt)
    tokens = expected(folder, tuple(ids), 12, 4)
    assert tokens != expected(folder, tuple(ids), 12)
    async with serving(Settings(models=(str(folder),), kv_bits=4, shutdown_timeout=60.0)) as served:
        body = {"model": "default", "prompt": prompt, "max_tokens": 12, "temperature": 0}
        answer = await fetch(served.server, "POST", "/v1/completions", body)
    assert answer.status == 200
    assert answer.json()["choices"][0]["text"] == loaded(folder)[1].tokenizer.wrapped.decode(tokens)
    assert answer.json()["usage"]["completion_tokens"] == 12

"""Tests of prefix cache buffers: few per node, counted, and bounded over all models."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.kv_cache.quantization import QuantizedCache
from greenroom.engine.resources.memory_account import MemoryAccount
from greenroom.engine.text.prefix_cache import kv_tensors
from greenroom.engine.text.prefix_cache.disk_tier import DiskTier
from greenroom.engine.text.prefix_cache.kv_tensors import pack
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.prompt_features import PrefixKey
from greenroom.tests.support.engines.text_engines import Driver, expected, quantized
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.texts.prompts import TURN_END, ask, words

GENEROUS = 1 << 30
KEY = PrefixKey()
DEVICE_LIMIT = 500
FOR_PREFIXES = DEVICE_LIMIT // 4
LAYERS = 2
PER_NODE = {None: 2 * LAYERS, 4: 2 * LAYERS + 1, 8: 2 * LAYERS + 1}
"""Buffers of a node: keys and values of each layer, and one array of all scales and biases."""


def prefilled(folder: Path, prompt: list[int], kv_bits: int | None) -> Cache:
    model = quantized(folder, kv_bits)
    cache = caches.new_cache(model)
    mx.eval(model(mx.array([prompt]), cache=cache), caches.state(cache))
    return cache


def assert_equal(found: Cache, exact: Cache, length: int) -> None:
    """Assert that the first tokens of two caches have the same bits in the same form."""
    for one, other in zip(caches.flat_layers(found), caches.flat_layers(exact), strict=True):
        assert caches.token_count(one) == caches.token_count(other)
        for tensor, same in zip(caches.kv_tensors(one), caches.kv_tensors(other), strict=True):
            # A sliding window keeps what it still needs.
            seen = slice(-tensor.shape[2], None) if hasattr(one, "max_size") else slice(length)
            assert tensor.dtype == same.dtype
            assert mx.array_equal(tensor[:, :, :length], same[:, :, seen])
        for state, same in zip(getattr(one, "cache", ()), getattr(other, "cache", ()), strict=True):
            assert mx.array_equal(state, same)


def restored(cache: PrefixCache, folder: Path, prompt: list[int], kv_bits: int | None) -> Cache:
    plain = caches.new_cache(quantized(folder, kv_bits))
    restoration = cache.restore(KEY, [*prompt, 5], plain)
    while not restoration.is_done:
        restoration.is_waiting(10.0)
        restoration.advance(GENEROUS, force=True)
    assert restoration.restored.tokens == len(prompt)
    return plain


def counted(cache: PrefixCache) -> int:
    """Return the arrays held by the nodes of a prefix cache."""
    return sum(
        array is not None for node in cache.memory.tree(KEY) for array in (*node.kv, *(node.states or ()))
    )


@pytest.mark.parametrize("kind", ["qwen3", "gemma3", "lfm2"])
@pytest.mark.parametrize("kv_bits", [None, 4, 8])
def test_a_prefix_comes_back_bit_by_bit_from_memory_and_from_disk(
    tiny_model: TinyModel, tmp_path: Path, kind: str, kv_bits: int | None
) -> None:
    folder, fingerprint = tiny_model(kind), "0123456789abcdef" * 2
    prompt = [*words(150, 1), TURN_END, *words(60, 2)]
    exact = prefilled(folder, prompt, kv_bits)
    cache = PrefixCache(GENEROUS, DiskTier(tmp_path, fingerprint, GENEROUS))
    for length in (151, len(prompt)):  # two nodes
        assert cache.insert(KEY, prompt[:length], prefilled(folder, prompt[:length], kv_bits), None)
    fork = [*prompt[:100], *words(50, 3)]
    assert cache.insert(KEY, fork, prefilled(folder, fork, kv_bits), None)  # and three
    assert_equal(restored(cache, folder, prompt, kv_bits), exact, len(prompt))
    assert cache.memory.buffers == counted(cache)
    cache.close(60.0)
    assert cache.memory.buffers == 0
    later = PrefixCache(GENEROUS, DiskTier(tmp_path, fingerprint, GENEROUS))
    assert_equal(restored(later, folder, prompt, kv_bits), exact, len(prompt))
    assert later.stored is not None
    assert later.stored.hits == 1
    later.close(60.0)


@pytest.mark.parametrize("kv_bits", PER_NODE)
def test_rows_of_a_batch_are_kept_in_as_few_buffers(tiny_model: TinyModel, kv_bits: int | None) -> None:
    folder, prompts = tiny_model("qwen3"), [words(40, 1), words(70, 2)]
    rows = [prefilled(folder, prompt, kv_bits) for prompt in prompts]
    batch = caches.merge(rows)
    cache = PrefixCache(GENEROUS)
    for row, prompt in enumerate(prompts):
        assert cache.insert(KEY, prompt, batch, row)
        assert cache.memory.buffers == counted(cache) == (row + 1) * PER_NODE[kv_bits]
    for prompt, plain in zip(prompts, rows, strict=True):
        assert_equal(restored(cache, folder, prompt, kv_bits), plain, len(prompt))


LAYER = st.none() | st.tuples(
    st.sampled_from([1, 2, 5]),
    st.sampled_from([(64, 64), (64, 32), (96, 64)]),
    st.sampled_from([(mx.float32, mx.float32), (mx.bfloat16, mx.float32), (mx.float16, mx.bfloat16)]),
)
"""Heads, widths and dtypes of keys and values; None for an empty layer."""


@given(layers=st.lists(LAYER, min_size=1, max_size=5))
def test_layers_of_all_shapes_and_types_are_packed_and_come_back(
    layers: list[tuple[int, tuple[int, int], tuple[mx.Dtype, mx.Dtype]] | None],
) -> None:
    cache: Cache = []
    for seed, layer in enumerate(layers):
        cache.append(QuantizedCache(4, 32))
        if layer is not None:
            heads, widths, dtypes = layer
            key = mx.random.key(seed)
            keys, values = (
                mx.random.normal((1, heads, 9, width), key=key).astype(dtype)
                for width, dtype in zip(widths, dtypes, strict=True)
            )
            cache[-1].update_and_fetch(keys, values)
    parts = [kv_tensors.copy_kv(cache, None, start, stop, 9) for start, stop in ((0, 4), (4, 9))]
    again: Cache = [QuantizedCache(4, 32) for _ in layers]
    for _ in kv_tensors.restore(again, parts, (), 9, 9):
        pass
    assert_equal(again, cache, 9)


def test_scales_and_biases_of_like_layers_are_one_array() -> None:
    tensors = [mx.zeros((1, 2, 7, width)) for width in (4, 1, 1, 4, 1, 1)]
    packed = pack([tensors] * 30)
    assert [array.shape for array in packed] == [(1, 2 * 4 * 30, 7, 1)]
    wider = [mx.zeros((1, 2, 7, width)) for width in (8, 2, 2, 4, 1, 1)]
    assert [array.shape for array in pack([wider] * 30)] == [(1, 120, 7, 2), (1, 120, 7, 1)]


@pytest.mark.deep
@pytest.mark.parametrize("kv_bits", [None, 4])
def test_a_device_with_few_buffers_costs_cached_prefixes_only(
    tiny_model: TinyModel, kv_bits: int | None
) -> None:
    folder, account = tiny_model("qwen3"), MemoryAccount(buffer_limit=DEVICE_LIMIT)
    cache = PrefixCache(GENEROUS)
    driver = Driver(folder, prefix_cache=cache, kv_bits=kv_bits, account=account)
    prompts = [[300 + seed, *words(39, seed)] for seed in range(2 * FOR_PREFIXES // PER_NODE[kv_bits])]
    for number, prompt in enumerate(prompts):
        tokens, known = ask(driver, prompt, 2)
        assert known == 0
        assert number % 8 or tokens == expected(folder, tuple(prompt), 2, kv_bits)
        assert cache.memory.buffers == counted(cache) <= FOR_PREFIXES
    statistics = driver.engine.statistics()
    assert statistics.prefix_cache is not None
    assert FOR_PREFIXES - statistics.prefix_cache.buffers < PER_NODE[kv_bits]
    assert statistics.prefix_cache.nodes == FOR_PREFIXES // PER_NODE[kv_bits]
    assert statistics.memory.cached_buffers == statistics.prefix_cache.buffers
    assert statistics.memory.cached_buffer_limit == FOR_PREFIXES
    for prompt, known in ((prompts[-1], 39), (prompts[0], 0)):
        assert ask(driver, prompt, 2) == (expected(folder, tuple(prompt), 2, kv_bits), known)
    fork = [*prompts[-1][:35], *words(40, 999)]
    assert ask(driver, fork, 2) == (expected(folder, tuple(fork), 2, kv_bits), 35)  # which splits a node
    assert cache.memory.buffers == counted(cache) <= FOR_PREFIXES
    driver.engine.close()
    assert account.statistics().cached_buffers == 0


@pytest.mark.deep
def test_two_models_share_the_buffers(tiny_model: TinyModel) -> None:
    folder, account = tiny_model("qwen3"), MemoryAccount(buffer_limit=DEVICE_LIMIT)
    held = [PrefixCache(GENEROUS) for _ in range(2)]
    first, later = (
        Driver(folder, prefix_cache=cache, kv_bits=kv_bits, account=account)
        for cache, kv_bits in zip(held, (None, 4), strict=True)
    )
    asked: list[int] = []
    first.engine.on_memory_wanted(lambda: asked.append(1))
    for seed in range(40):
        ask(first, words(40, seed), 2)
    assert not asked
    for seed in range(40):
        ask(later, words(40, seed), 2)
        assert sum(cache.memory.buffers for cache in held) <= FOR_PREFIXES
        if asked:
            first.engine.release_memory()
            asked.clear()
    assert all(cache.memory.buffers > FOR_PREFIXES // 3 for cache in held)
    prompt = words(40, 39)
    assert ask(first, prompt, 2) == (expected(folder, tuple(prompt), 2), 39)
    assert ask(later, prompt, 2) == (expected(folder, tuple(prompt), 2, 4), 39)
    first.engine.close()
    later.engine.close()


@pytest.mark.deep
def test_running_caches_are_counted_and_leave_less_to_prefixes(tiny_model: TinyModel) -> None:
    folder, account = tiny_model("qwen3"), MemoryAccount(buffer_limit=48)
    driver = Driver(folder, prefix_cache=PrefixCache(GENEROUS), account=account)
    ask(driver, words(40, 1), 2)
    assert (account.statistics().cached_buffers, account.buffers.cached_limit) == (2 * LAYERS, 12)
    requests = [driver.submit(words(40 + 400 * row, row), 30) for row in range(4)]
    fewest = 12
    while driver.engine.has_work:
        driver.step()
        fewest = min(fewest, account.buffers.cached_limit or 0)
    assert fewest < 12
    for row, request in enumerate(requests):
        assert driver.tokens[int(request)] == expected(folder, tuple(words(40 + 400 * row, row)), 30)
    assert account.buffers.cached_limit == 12
    driver.engine.close()


def test_each_array_takes_whole_pages_where_the_device_gives_no_less(tiny_model: TinyModel) -> None:
    folder, prompt = tiny_model("qwen3"), words(40, 1)
    cache = PrefixCache(GENEROUS)
    cache.memory.page = 16_384
    cache.insert(KEY, prompt, prefilled(folder, prompt, 4), None)
    arrays = [array for node in cache.memory.tree(KEY) for array in node.kv if array is not None]
    assert sum(array.nbytes for array in arrays) < len(arrays) * 16_384
    for _ in range(2):
        assert cache.memory.nbytes == len(arrays) * 16_384
        cache.memory.measure()

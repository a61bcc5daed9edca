"""Tests of restoration in slices: no stream waits for more than one slice, nor for the disk."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import mlx.core as mx
import pytest

from greenroom.engine.kv_cache import caches
from greenroom.engine.text.prefix_cache import kv_tensors, memory_tier, prefix_cache
from greenroom.engine.text.prefix_cache import restoration as stored_reads
from greenroom.engine.text.prefix_cache.disk_files import DiskFolder, HostTensors
from greenroom.engine.text.prefix_cache.disk_tier import DiskTier
from greenroom.engine.text.prefix_cache.memory_tier import pack
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.prompt_features import PrefixKey
from greenroom.engine.text.scheduler import prefix_reuse
from greenroom.engine.text.scheduler.prefill_policy import PrefillPolicy
from greenroom.schemas.events.events import PromptProgress
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.engines.text_engines import Driver, expected, loaded, prefilled_cache
from greenroom.tests.support.models.tiny_kinds import DEEPER
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.texts.prompts import TURN_END, ask, cached_tokens, turn_ends, words

KINDS = ("qwen3", *deep_only("gemma3", "lfm2"))
KEY = PrefixKey()
FINGERPRINT = "0123456789abcdef" * 2
GENEROUS = 1 << 30
HURRIED = PrefillPolicy(max_stall=1e-9)
"""Policy without time for more than the minimum of each step."""

PROMPT = [*words(300, 1), TURN_END]


def disk_of(root: Path) -> DiskTier:
    return DiskTier(root, FINGERPRINT, GENEROUS)


def written(folder: Path, root: Path) -> None:
    """Write PROMPT to disk."""
    driver = Driver(folder, prefix_cache=PrefixCache(GENEROUS, disk_of(root)))
    ask(driver, [*PROMPT, *words(40, 2)], 1)
    driver.engine.close()


def calm(driver: Driver) -> int:
    """Start a long stream; return its index."""
    index = int(driver.submit(words(20, 90), 20_000))  # however long the disk takes
    while len(driver.tokens[index]) < 5:
        driver.step()
    return index


@pytest.mark.parametrize("on_disk", [*deep_only(False), True])
@pytest.mark.parametrize("kind", KINDS)
def test_neighbors_decode_between_slices(
    tiny_model: TinyModel, tmp_path: Path, kind: str, on_disk: bool
) -> None:
    folder = tiny_model(kind)
    written(folder, tmp_path)
    driver = Driver(folder, HURRIED, PrefixCache(GENEROUS, disk_of(tmp_path)))
    if not on_disk:
        ask(driver, [*PROMPT, *words(40, 2)], 1)
    beside = calm(driver)
    largest = max(array.nbytes for array in mx_arrays(folder))
    prompt = [*PROMPT, *words(30, 3)]
    before = len(driver.tokens[beside])
    request = driver.submit(prompt, 8, checkpoints=turn_ends(prompt))
    slices: list[int] = []
    while not driver.tokens[int(request)]:
        known = len(driver.events[str(request)])
        driver.step()
        slices.append(driver.engine._prefill.restored_bytes)
        computed = [e for e in driver.events[str(request)][known:] if isinstance(e, PromptProgress)]
        assert not (slices[-1] and computed), "a chunk on top of a slice"
    made = [nbytes for nbytes in slices if nbytes]
    assert max(made) <= largest
    assert len(driver.tokens[beside]) - before >= len(made) >= 4
    while len(driver.tokens[int(request)]) < 8:
        driver.step()
    assert driver.tokens[int(request)] == expected(folder, tuple(prompt), 8)
    driver.engine.cancel(str(beside))
    driver.run()
    assert cached_tokens(driver, request) == len(PROMPT)
    driver.engine.close()


def mx_arrays(folder: Path) -> list[mx.array]:
    """Return the arrays of a cache with capacity for prompts like those used here."""
    layers = caches.flat_layers(prefilled_cache(folder, words(500, 1)))
    return [array for layer in layers for array in (*caches.kv_tensors(layer), *getattr(layer, "cache", ()))]


def test_slices_fit_into_what_is_allowed(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3", **DEEPER)
    cache = PrefixCache(GENEROUS)
    cache.insert(KEY, PROMPT, prefilled_cache(folder, PROMPT), None)
    plain = caches.new_cache(loaded(folder)[0])
    restoration = cache.restore(KEY, [*PROMPT, 5], plain, 512)
    tensor = 512 * 2 * 32 * 4
    assert restoration.advance(tensor - 1) == 0
    assert restoration.advance(tensor - 1, force=True) == tensor
    assert restoration.advance(3.5 * tensor) == 3 * tensor
    assert restoration.advance(GENEROUS) == 4 * tensor
    assert (restoration.is_done, restoration.restored.tokens) == (True, len(PROMPT))
    computed = prefilled_cache(folder, PROMPT)
    for layer, exact in zip(plain, computed, strict=True):
        assert (layer.offset, layer.keys.shape[2]) == (len(PROMPT), 512)
        assert mx.array_equal(layer.values[:, :, : len(PROMPT)], exact.values[:, :, : len(PROMPT)])


def test_slices_grow_step_by_step(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first slice is small, since its cost is unknown."""
    monkeypatch.setattr(prefix_reuse, "FIRST_SLICE_BYTES", 1)
    driver = Driver(tiny_model("qwen3", **DEEPER), PrefillPolicy(idle_ms=1e9), PrefixCache(GENEROUS))
    ask(driver, [*PROMPT, *words(40, 2)], 1)
    request = driver.submit([*PROMPT, *words(30, 3)], 1)
    slices: list[int] = []
    while not driver.tokens[int(request)]:
        driver.step()
        slices.append(driver.engine._prefill.restored_bytes)
    tensor = 512 * 2 * 32 * 4
    assert [nbytes // tensor for nbytes in slices if nbytes] == [1, 2, 4, 1]


def test_what_is_being_restored_is_not_evicted(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3", **DEEPER)
    cache = PrefixCache(GENEROUS)
    cache.insert(KEY, PROMPT, prefilled_cache(folder, PROMPT), None)
    other = [*PROMPT, *words(50, 4)]
    cache.insert(KEY, other, prefilled_cache(folder, other), None)
    plain = caches.new_cache(loaded(folder)[0])
    restoration = cache.restore(KEY, [*PROMPT, 5], plain, 512)
    restoration.advance(0, force=True)
    cache.memory.evict_to(0)
    assert cache.match(KEY, [*other, 5], False).usable == len(PROMPT)  # the end of the other has gone
    fork = [*PROMPT[:100], *words(50, 5)]
    cache.insert(KEY, fork, prefilled_cache(folder, fork), None)  # splits what is being copied
    cache.memory.evict_to(0)
    assert cache.match(KEY, [*PROMPT, 5], False).usable == len(PROMPT)
    restoration.advance(GENEROUS)
    assert restoration.restored.tokens == len(PROMPT)
    exact = prefilled_cache(folder, PROMPT)[2].keys[:, :, : len(PROMPT)]
    assert mx.array_equal(plain[2].keys[:, :, : len(PROMPT)], exact)
    cache.memory.evict_to(0)
    assert cache.memory.nbytes == 0


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_hang_up_in_the_middle_frees_everything(
    tiny_model: TinyModel, tmp_path: Path, on_disk: bool
) -> None:
    folder = tiny_model("qwen3")
    written(folder, tmp_path)
    driver = Driver(folder, HURRIED, PrefixCache(GENEROUS, disk_of(tmp_path)))
    cache = driver.engine.prefix_cache
    assert cache is not None
    if not on_disk:
        ask(driver, [*PROMPT, *words(40, 2)], 1)
    beside = calm(driver)
    request = driver.submit([*PROMPT, *words(30, 3)], 8)
    while not driver.engine._prefill.restored_bytes:
        driver.step()
    assert not driver.tokens[int(request)]
    driver.engine.cancel(request)
    driver.engine.cancel(str(beside))
    driver.run()
    cache.memory.evict_to(0)
    assert cache.memory.nbytes == 0
    assert driver.engine.statistics().memory.running == 0
    assert ask(driver, [*PROMPT, *words(30, 3)])[0] == expected(folder, (*PROMPT, *words(30, 3)), 12)
    driver.engine.close()


def test_a_sequence_preempted_while_it_is_restored_resumes(tiny_model: TinyModel) -> None:
    folder = tiny_model("gemma3")
    driver = Driver(folder, HURRIED, PrefixCache(GENEROUS))
    ask(driver, [*PROMPT, *words(40, 2)], 1)
    beside = calm(driver)
    prompt = [*PROMPT, *words(30, 3)]
    request = driver.submit(prompt, 12, checkpoints=turn_ends(prompt))
    while not driver.engine._prefill.restored_bytes:
        driver.step()
    driver.engine.admission.preemption._preempt_one()
    assert driver.engine.statistics().prefilling == 0
    driver.engine.cancel(str(beside))
    driver.run()
    assert driver.tokens[int(request)] == expected(folder, tuple(prompt), 12)
    assert driver.engine.statistics().admission.resumed == 1


class StuckFolder(DiskFolder):
    """A disk that blocks until released."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, FINGERPRINT, GENEROUS)
        self.go_on = threading.Event()

    def read(self, name: str) -> HostTensors:
        self.go_on.wait()
        return super().read(name)


def stuck(folder: Path, root: Path) -> tuple[Driver, StuckFolder]:
    written(folder, root)
    disk = disk_of(root)
    disk.folder = stuck_folder = StuckFolder(root)
    return Driver(folder, prefix_cache=PrefixCache(GENEROUS, disk)), stuck_folder


def test_nobody_else_waits_for_the_disk(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tiny_model("qwen3")
    driver, disk = stuck(folder, tmp_path)
    prompt = [*PROMPT, *words(30, 3)]
    waiting = [driver.submit(prompt, 8), driver.submit([*PROMPT, *words(30, 4)], 8)]
    other = driver.submit(words(60, 5), 8)
    while len(driver.tokens[int(other)]) < 8:
        driver.step()
    assert not driver.tokens[int(waiting[0])]
    assert driver.engine.has_work
    disk.go_on.set()
    driver.run()
    assert driver.tokens[int(waiting[0])] == expected(folder, tuple(prompt), 8)
    assert [cached_tokens(driver, request) for request in waiting] == [len(PROMPT)] * 2
    cache = driver.engine.prefix_cache
    assert cache is not None
    assert cache.stored is not None
    assert cache.stored.hits == 1  # one reading for both
    driver.engine.close()


def test_a_disk_that_answers_too_late_is_not_waited_for(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model("qwen3")
    driver, disk = stuck(folder, tmp_path)
    monkeypatch.setattr(stored_reads, "READ_TIMEOUT", 0.0)
    prompt = [*PROMPT, *words(30, 3)]
    assert ask(driver, prompt, 8) == (expected(folder, tuple(prompt), 8), 0)
    cache = driver.engine.prefix_cache
    assert cache is not None
    cache.memory.evict_to(0)
    assert cache.match(KEY, prompt, False).usable == 0  # nor is it asked again before it answers
    disk.go_on.set()
    while not cache.match(KEY, prompt, False).usable:
        driver.step()
    driver.engine.close()


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_a_long_prompt_is_inserted_in_parts(
    tiny_model: TinyModel, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Little is copied at its end or to split a node, and parts computed before a cancel are kept."""
    monkeypatch.setattr(prefix_cache, "PART_BYTES", 1)
    monkeypatch.setattr(memory_tier, "NODE_BYTES", 1 << 16)
    folder = tiny_model(kind)
    driver = Driver(folder, PrefillPolicy(idle_ms=0.01, min_chunk=50), PrefixCache(GENEROUS))
    cache = driver.engine.prefix_cache
    assert cache is not None
    prompt = words(600, 7)
    request = driver.submit(prompt, 8)
    while not cache.memory.match(KEY, pack(prompt)).length:
        driver.step()
    early = cache.memory.match(KEY, pack(prompt)).length
    assert early < 600
    driver.run()
    assert driver.tokens[int(request)] == expected(folder, tuple(prompt), 8)
    nodes = cache.memory.match(KEY, pack(prompt)).path
    assert len(nodes) > 3
    answer, cached = ask(driver, [*prompt, *words(20, 8)])
    assert answer == expected(folder, (*prompt, *words(20, 8)), 12)
    assert cached >= 599


@pytest.mark.parametrize("rows", [*deep_only(1), 2])
def test_a_long_answer_is_inserted_in_parts(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """The last step does not copy all of the answer."""
    folder = tiny_model("qwen3")
    monkeypatch.setattr(
        prefix_cache, "PART_BYTES", 64 * kv_tensors.bytes_per_token(prefilled_cache(folder, PROMPT))
    )
    cache = PrefixCache(GENEROUS)
    driver = Driver(folder, prefix_cache=cache)
    for row in range(rows):
        driver.submit(words(40, row), 200)
    inserted: list[int] = []
    while driver.engine.has_work:
        known = [*words(40, 0), *driver.tokens[0]]
        inserted.append(cache.match(KEY, [*known, 5], False).usable)
        driver.step()
    added = [after - before for before, after in itertools.pairwise(inserted) if after != before]
    assert len(added) >= 3
    assert max(added) <= 64 + 16
    prompt = [*words(40, 0), *driver.tokens[0], 7]
    request = driver.submit(prompt, 4)
    driver.run()
    assert cached_tokens(driver, request) >= 239
    assert driver.tokens[-1] == expected(folder, tuple(prompt), 4)

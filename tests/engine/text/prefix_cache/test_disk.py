"""Tests of the disk tier: prefixes survive a restart, in a folder that others may use, fill up and damage."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from greenroom.engine.text.prefix_cache.disk_files import (
    FOLDER_NAME,
    CacheBlock,
    DiskFolder,
    HostTensor,
    HostTensors,
    read_tensors,
)
from greenroom.engine.text.prefix_cache.disk_tier import DiskTier
from greenroom.engine.text.prefix_cache.memory_tier import pack
from greenroom.engine.text.prefix_cache.offload import DiskIndex, DiskThread, Offload
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.prompt_features import PrefixKey
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.engines.text_engines import Driver, expected, prefilled_cache
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.texts.continued_conversations import begin_conversation, continue_conversation
from greenroom.tests.support.texts.prompts import TURN_END, ask, cached_tokens, words

KINDS = ("qwen3", "qwen3_5", *deep_only("gemma3", "lfm2"))
FINGERPRINT = "0123456789abcdef" * 2
GENEROUS = 1 << 30
KEY = PrefixKey()


class Life:
    """An engine from start to end, over a persistent folder."""

    def __init__(
        self, model: Path, root: Path, fingerprint: str = FINGERPRINT, limit: int = GENEROUS
    ) -> None:
        self.disk = DiskTier(root, fingerprint, limit)
        self.driver = Driver(model, prefix_cache=PrefixCache(GENEROUS, self.disk))

    def ask(self, prompt: Sequence[int], count: int = 12) -> tuple[list[int], int]:
        """Return the answer's tokens, and the number of cached prompt tokens."""
        return ask(self.driver, prompt, count)

    def end(self) -> DiskTier:
        self.driver.engine.close()
        return self.disk


def files_in(root: Path) -> list[Path]:
    return sorted(path for path in (root / FOLDER_NAME).rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_goes_on_after_a_restart(tiny_model: TinyModel, tmp_path: Path, kind: str) -> None:
    folder = tiny_model(kind)
    first = Life(folder, tmp_path)
    prompt = begin_conversation(first)
    assert first.end().offload.written >= 3
    second = Life(folder, tmp_path)
    continue_conversation(second, folder, prompt)
    disk = second.end()
    assert disk.hits == 2
    assert disk.folder.removed == 0


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_a_batch_are_written(tiny_model: TinyModel, tmp_path: Path, kind: str) -> None:
    folder = tiny_model(kind)
    prompts = [words(50 + 13 * i, 20 + i) for i in range(4)]
    first = Life(folder, tmp_path)
    for i, prompt in enumerate(prompts):
        first.driver.submit(prompt, 40 + 3 * i)
    first.driver.run()
    first.end()
    second = Life(folder, tmp_path)
    requests = [
        second.driver.submit([*prompt, *first.driver.tokens[i], *words(20, i)], 8)
        for i, prompt in enumerate(prompts)
    ]
    second.driver.run()
    for i, request in enumerate(requests):
        whole = (*prompts[i], *first.driver.tokens[i], *words(20, i))
        assert second.driver.tokens[int(request)] == expected(folder, whole, 8)
        assert cached_tokens(second.driver, request) == len(prompts[i]) + len(first.driver.tokens[i]) - 1
    second.end()


def test_what_is_shared_is_written_once(tiny_model: TinyModel, tmp_path: Path) -> None:
    life = Life(tiny_model("qwen3"), tmp_path)
    system = words(300, 1)
    for user in range(4):
        life.ask(system + words(50, 10 + user), 1)
    life.end()
    per_token = 4 * 2 * 2 * 32 * 4
    data = sum(path.stat().st_size for path in files_in(tmp_path))
    assert 0.9 < data / ((300 + 4 * 50) * per_token) < 1.1


def test_a_broken_file_costs_its_part_only(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tiny_model("qwen3")
    system, user = words(200, 1), words(100, 2)
    life = Life(folder, tmp_path)
    life.ask(system, 1)
    life.ask(system + user, 1)
    life.end()
    broken, intact = sorted(files_in(tmp_path), key=lambda path: path.stat().st_size)
    data = bytearray(broken.read_bytes())
    data[-100] ^= 1
    broken.write_bytes(data)
    again = Life(folder, tmp_path)
    answer, cached = again.ask(system + user)
    assert answer == expected(folder, tuple(system + user), 12)
    assert cached == 200
    assert again.end().folder.removed == 1
    assert intact.exists()


@pytest.mark.deep
def test_nobody_elses_files_are_touched(tiny_model: TinyModel, tmp_path: Path) -> None:
    """Neither a scan of the folder nor an eviction removes foreign files."""
    outside = tmp_path / "outside"
    outside.mkdir()
    name = "kv-" + "a" * 32 + ".safetensors"
    root = tmp_path / "root"
    home = root / FOLDER_NAME / FINGERPRINT
    home.mkdir(parents=True)
    mine = [
        tmp_path / "outside" / name,
        root / "notes.txt",
        root / name,
        root / FOLDER_NAME / "notes.txt",
        root / FOLDER_NAME / name,
        root / FOLDER_NAME / "mine" / name,
        home / "notes.txt",
        home / "model.safetensors",
        home / f"my {name}",
        home / f"{name}.bak",
        home / "deeper" / name,
    ]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine" * 50_000)
        os.utime(path, (0, 0))
    (home / ("kv-" + "b" * 32 + ".safetensors")).symlink_to(outside / name)
    (home / ("kv-" + "c" * 32 + ".safetensors")).mkdir()
    (root / FOLDER_NAME / ("d" * 32)).symlink_to(outside, target_is_directory=True)
    ours = home / name
    ours.write_bytes(b"ours, but broken")
    life = Life(tiny_model("qwen3"), root, limit=2 << 20)
    for seed in range(8):
        life.ask(words(200, seed), 1)
    disk = life.end()
    assert disk.folder.evictions > 0
    assert not ours.exists()
    assert all(path.read_bytes() == b"mine" * 50_000 for path in mine)


@pytest.mark.deep
def test_the_bound_is_honoured(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tiny_model("gemma3")
    limit = 2 << 20
    other = DiskFolder(tmp_path, FINGERPRINT[::-1], GENEROUS)
    block = CacheBlock("kv", bytes(16), 0, pack(range(40)))
    other.write(block, (HostTensor("mlx.core.uint8", np.zeros((1, 1, 1, 1 << 20), np.uint8)),))
    life = Life(folder, tmp_path, limit=limit)
    system = [*words(100, 1), TURN_END]
    for seed in range(20):
        life.ask(system + words(120, 50 + seed), 1)
        assert sum(path.stat().st_size for path in files_in(tmp_path)) <= limit
    disk = life.end()
    assert disk.folder.evictions > 5
    assert disk.folder.nbytes > limit // 2
    assert not (tmp_path / FOLDER_NAME / FINGERPRINT[::-1]).exists()  # another model's, and older
    answer, cached = Life(folder, tmp_path, limit=limit).ask([*system, *words(30, 9)])
    assert answer == expected(folder, tuple(system + words(30, 9)), 12)
    assert cached == len(system)  # what all of them begin with was used last


@pytest.mark.deep
def test_two_engines_share_a_folder(tiny_model: TinyModel, tmp_path: Path) -> None:
    """Both write equal and different files, and each evicts files that the other reads."""
    folder = tiny_model("lfm2")
    lives = [Life(folder, tmp_path, limit=1 << 20) for _ in range(2)]
    for seed in range(12):
        for index, life in enumerate(lives):
            common, own = words(150, seed // 2), words(60, 100 * index + seed)
            answer, _ = life.ask(common + own, 8)
            assert answer == expected(folder, tuple(common + own), 8)
    assert sum(life.end().folder.removed for life in lives) == 0
    for path in files_in(tmp_path):
        read_tensors(path, FINGERPRINT)


def test_vanished_files_are_no_error(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tiny_model("gemma3")
    prompt = words(200, 1)
    first = Life(folder, tmp_path)
    first.ask(prompt, 1)
    first.end()
    second = Life(folder, tmp_path)
    assert second.disk.match(pack(prompt)).length == 200 - 1
    shutil.rmtree(tmp_path / FOLDER_NAME)
    assert second.ask(prompt) == (expected(folder, tuple(prompt), 12), 0)
    assert second.end().offload.written > 0  # the folder is made again


def test_another_model_finds_nothing(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tiny_model("qwen3")
    first = Life(folder, tmp_path)
    first.ask(words(100, 1))
    first.end()
    second = Life(folder, tmp_path, FINGERPRINT[::-1])
    assert second.ask(words(100, 1))[1] == 0
    second.end()


class SlowFolder(DiskFolder):
    """A disk that takes 50 ms for a file."""

    def write(self, block: CacheBlock, tensors: HostTensors) -> list[str]:
        threading.Event().wait(0.05)
        return super().write(block, tensors)


def test_a_slow_disk_gets_the_seconds_of_the_close_for_all_files_together(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    model, prefixes = tiny_model("qwen3"), PrefixCache(GENEROUS)
    thread = DiskThread("writer")
    offload = Offload(SlowFolder(tmp_path, FINGERPRINT, GENEROUS), DiskIndex(), thread)
    for seed in range(12):
        prompt = words(40, seed)
        prefixes.insert(KEY, prompt, prefilled_cache(model, prompt), None)
        offload.add(prefixes.memory.tree(KEY), pack(prompt), False)
    offload.finish(0.1)
    assert offload.pending
    offload.drop()
    assert thread.close(10)


class StuckFolder(DiskFolder):
    """A disk that blocks until released."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, FINGERPRINT, GENEROUS)
        self.go_on = threading.Event()
        self.begun = 0

    def write(self, block: CacheBlock, tensors: HostTensors) -> list[str]:
        self.begun += 1
        self.go_on.wait()
        return super().write(block, tensors)


@pytest.mark.deep
def test_a_disk_that_lags_holds_nobody_up_and_nothing_grows(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = tiny_model("qwen3")
    prefixes = PrefixCache(GENEROUS)
    folder, index = StuckFolder(tmp_path), DiskIndex()
    thread = DiskThread("writer")
    offload = Offload(folder, index, thread)
    for seed in range(8):
        prompt = words(200, seed)
        prefixes.insert(KEY, prompt, prefilled_cache(model, prompt), None)
        offload.add(prefixes.memory.tree(KEY), pack(prompt), False)
        for _ in range(4):
            offload.advance()
    assert offload.pending
    assert folder.begun == 1  # what was handed over is one file, and no more
    assert len(index.match(pack(words(200, 0))).blocks) == 0  # under way, not there
    folder.go_on.set()
    offload.finish(10)
    assert thread.close(10)
    for seed in range(8):
        assert index.match(pack(words(200, seed))).length == 200


def test_a_disk_that_fails_costs_nothing_but_the_files(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tiny_model("qwen3")
    (tmp_path / FOLDER_NAME).write_text("a file where a folder should be")
    life = Life(folder, tmp_path)
    for seed in range(6):
        assert life.ask(words(100, seed)) == (expected(folder, tuple(words(100, seed)), 12), 0)
    disk = life.end()
    assert disk.offload.written == 0
    assert disk.offload.skipped > 0


@pytest.mark.deep
def test_what_memory_evicts_before_it_is_written_is_not(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = tiny_model("gemma3")
    prefixes = PrefixCache(1 << 20)
    disk = DiskTier(tmp_path, FINGERPRINT, GENEROUS)
    for seed in range(30):
        prompt = words(100, seed)
        prefixes.insert(KEY, prompt, prefilled_cache(model, prompt), None)
        disk.insert(prefixes.memory.tree(KEY), pack(prompt), True)
    disk.close(prefixes.memory, 10)
    held = [seed for seed in range(30) if prefixes.match(KEY, [*words(100, seed), 1], True).usable]
    assert 0 < len(held) < 30
    found = [seed for seed in range(30) if disk.match(pack(words(100, seed))).usable(True)]
    assert found == held

"""Tests of disk tier files: contents are restored exactly or the file is discarded; and of fingerprints."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from structlog.testing import capture_logs

from greenroom.engine.text.prefix_cache.disk_files import (
    FOLDER_NAME,
    BadFileError,
    CacheBlock,
    DiskFolder,
    HostTensor,
    HostTensors,
    read_block,
    read_tensors,
    token_hash,
)
from greenroom.engine.text.prefix_cache.disk_tier import fingerprint
from greenroom.engine.text.prefix_cache.memory_tier import pack
from greenroom.engine.text.prefix_cache.offload import DiskIndex, DiskThread, Offload
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.text_engines import loaded
from greenroom.tests.support.models.tiny_models import TinyModel

FINGERPRINT = "0123456789abcdef" * 2
GENEROUS = 1 << 30


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16, mx.float32, mx.uint32, mx.bool_])
def test_every_byte_comes_back(tmp_path: Path, dtype: mx.Dtype) -> None:
    array = (mx.random.normal((1, 2, 40, 5), key=mx.random.key(1)) * 3).astype(dtype)
    mx.eval(array)
    folder = DiskFolder(tmp_path, FINGERPRINT, GENEROUS)
    block = CacheBlock("kv", bytes(16), 0, pack(range(40)))
    folder.write(block, (HostTensor.view(array), None))
    whole, nothing = folder.read(block.name)
    assert whole is not None
    assert nothing is None
    read, middle = whole.to_array(), whole.part(7, 9).to_array()
    assert (read.dtype, read.shape) == (dtype, array.shape)
    assert mx.array_equal(read, array)
    assert mx.array_equal(middle, array[:, :, 7:9])


def stored(root: Path, limit: int = GENEROUS) -> tuple[DiskFolder, Path, CacheBlock]:
    """Write a file of 40 tokens; return its folder, path and description."""
    folder = DiskFolder(root, FINGERPRINT, limit)
    block = CacheBlock("kv", token_hash(b""), 0, pack(range(40)))
    words = np.random.default_rng(2).integers(0, 1 << 32, (1, 1, 40, 50), dtype=np.uint32)
    folder.write(block, (HostTensor("mlx.core.float32", words), None))
    return folder, root / FOLDER_NAME / FINGERPRINT / block.name, block


def block_of(number: int) -> tuple[CacheBlock, HostTensors]:
    """Return one of several files of 40 tokens and about 8 KB."""
    words = np.full((1, 1, 40, 50), number, dtype=np.uint32)
    tokens = pack(range(number, number + 40))
    return CacheBlock("kv", token_hash(b""), 0, tokens), (HostTensor("mlx.core.float32", words),)


class SmallDisk:
    """A simulated disk with limited free space, since a real one cannot be filled here."""

    def __init__(self, size: int) -> None:
        self.size = size

    def free(self, folder: Path) -> int:
        return self.size - sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_oldest_files_go_where_the_disk_would_have_too_little_left(tmp_path: Path) -> None:
    disk = SmallDisk(100_000)
    folder = DiskFolder(tmp_path, FINGERPRINT, GENEROUS, 40_000, disk.free)
    blocks = [block_of(number) for number in range(20)]
    evicted = []
    for number, (block, tensors) in enumerate(blocks):
        evicted += folder.write(block, tensors)
        folder.touch([block.name])
        assert disk.free(tmp_path) >= 40_000, number
    assert 3 <= len(blocks) - len(evicted) <= 8
    assert evicted == [block.name for block, _ in blocks[: len(evicted)]]
    kept = {path.name for path in (tmp_path / FOLDER_NAME / FINGERPRINT).iterdir()}
    assert kept == {block.name for block, _ in blocks[len(evicted) :]}


def test_nothing_is_written_where_that_does_not_help_until_there_is_room_again(tmp_path: Path) -> None:
    disk = SmallDisk(100_000)
    folder, index, thread = (
        DiskFolder(tmp_path, FINGERPRINT, GENEROUS, 40_000, disk.free),
        DiskIndex(),
        DiskThread("test"),
    )
    offload = Offload(folder, index, thread)

    def write(number: int) -> None:
        block, tensors = block_of(number)
        offload._write(block, [tensors], [block.name])

    write(1)
    assert len(index) == 1
    disk.size = 30_000
    with capture_logs() as logs:
        for number in (2, 3, 4, 5, 6):
            write(number)
        # What was there has been given up, and is not promised any more.
        assert (len(index), folder.nbytes, offload.written, offload.skipped) == (0, 0, 1, 5)
        assert not any(path.is_file() for path in tmp_path.rglob("*"))
        disk.size = 100_000
        write(7)
        assert (len(index), offload.written) == (1, 2)
        disk.size = 0
        write(8)
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == [
        "prefixes are not written"
    ] * 2
    assert thread.close(10)


BREAKS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut in the length": lambda data: data[:5],
    "cut in the header": lambda data: data[:100],
    "cut in the data": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
    "no JSON": lambda data: data[:8] + b"x" * (len(data) - 8),
    "another version": lambda data: data.replace(b'"version":"4"', b'"version":"0"'),
    "another model": lambda data: data.replace(FINGERPRINT.encode(), FINGERPRINT[::-1].encode()),
    "other tokens": lambda data: data.replace(b"000000000100000002000000", b"000000000100000003000000"),
    "larger shape": lambda data: data.replace(b"[1,1,40,50]", b"[1,1,40,51]"),
    "endless header": lambda data: b"\xff" * 8 + data[8:],
}


@pytest.mark.parametrize("fault", BREAKS)
def test_broken_files_are_removed_when_the_folder_is_read(tmp_path: Path, fault: str) -> None:
    _, path, block = stored(tmp_path)
    assert read_block(path, FINGERPRINT) == block
    broken = BREAKS[fault](path.read_bytes())
    assert broken != path.read_bytes()
    path.write_bytes(broken)
    again = DiskFolder(tmp_path, FINGERPRINT, GENEROUS)
    assert list(again.scan()) == []
    assert not path.exists()
    assert again.removed == 1


def flipped(place: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + bytes([data[place] ^ 4]) + data[place:][1:]


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "first byte": flipped(-8000),
    "middle byte": flipped(-4000),
    "last byte": lambda data: data[:-1] + bytes([data[-1] ^ 4]),
    "halves exchanged": lambda data: data[:-8000] + data[-4000:] + data[-8000:-4000],
    "words exchanged": lambda data: data[:-8000] + data[-7992:-7984] + data[-8000:-7992] + data[-7984:],
    "other shape": lambda data: data.replace(b"[1,1,40,50]", b"[1,1,50,40]"),
    "other type": lambda data: data.replace(b"mlx.core.float32 none", b"mlx.core.int32 none  "),
    "nothing first": lambda data: data.replace(b"mlx.core.float32 none", b"none mlx.core.float32"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_content_is_found_when_read(tmp_path: Path, change: str) -> None:
    folder, path, block = stored(tmp_path)
    read_tensors(path, FINGERPRINT)
    changed = CHANGES[change](path.read_bytes())
    assert changed != path.read_bytes()
    path.write_bytes(changed)
    assert list(folder.scan()) == [block]  # what the file says of itself is as it was
    with pytest.raises(BadFileError):
        folder.read(block.name)
    assert not path.exists()


def test_the_fingerprint_is_of_everything_that_matters(tiny_model: TinyModel, tmp_path: Path) -> None:
    source = tiny_model("qwen3")
    model, _ = loaded(source)
    copy = tmp_path / "copy"
    shutil.copytree(source, copy, copy_function=shutil.copyfile)
    plain = fingerprint(source, Settings(), model)
    assert fingerprint(copy, Settings(), model) == plain
    seen = {plain, fingerprint(copy, Settings(dtype="bfloat16"), model)}
    other_model, _ = loaded(tiny_model("lfm2"))
    seen.add(fingerprint(copy, Settings(), other_model))
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json"):
        (copy / name).write_text((copy / name).read_text() + " ")
        seen.add(fingerprint(copy, Settings(), model))
    (copy / "chat_template.jinja").write_text("{{ messages }}")
    seen.add(fingerprint(copy, Settings(), model))
    weights = mx.load(str(copy / "model.safetensors"))
    assert isinstance(weights, dict)
    name = "model.layers.1.mlp.up_proj.weight"
    weights[name] = weights[name] * 1.001
    mx.save_safetensors(str(copy / "model.safetensors"), weights, metadata={"format": "mlx"})
    seen.add(fingerprint(copy, Settings(), model))
    assert len(seen) == 8

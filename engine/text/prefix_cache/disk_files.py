"""Files of the disk tier (safetensors with a description and a checksum), and their folder.

A file's name is derived from its tokens, so equal content has an equal name, and writing it twice is
harmless.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from greenroom.schemas.logs import get_logger

VERSION = "4"
"""Version of the files, of the layout of their tensors, and of the patches with which models compute them."""

NAME = re.compile(r"^(kv|state)-[0-9a-f]{32}\.safetensors$")

_FORMAT = "greenroom prefix"
_NOTHING = "none"
_DTYPES = {str(each): each for each in vars(mx).values() if isinstance(each, mx.Dtype)}
_PAGE = 4096
_WEIGHTS = np.arange(1, _PAGE // 4, 2, dtype=np.uint64)


class BadFileError(Exception):
    """Error for a file that is foreign, of another version, truncated or changed."""


@attrs.frozen(eq=False)
class HostTensor:
    """Data of an array outside MLX, which has dtypes that NumPy lacks. `words`: numPy array of the same
    shape, with the same bits as unsigned integers.
    """

    dtype: str
    words: Any

    @classmethod
    def view(cls, array: mx.array) -> HostTensor:
        """Return a view of an evaluated array's data; it keeps the array's buffer alive."""
        buffer: Any = array  # type checkers know the buffer protocol from Python 3.12 on
        data: Any = memoryview(buffer).cast("B") if array.size else b""
        words = np.frombuffer(data, f"u{array.dtype.size}").reshape(array.shape)
        return cls(str(array.dtype), words)

    def part(self, start: int, stop: int | None) -> HostTensor:
        """Return a view of a range of the third axis; all of it if `stop` is None."""
        return self if stop is None else HostTensor(self.dtype, self.words[:, :, start:stop])

    def to_array(self) -> mx.array:
        """Return a copy as an MLX array; it is made contiguous first, since `view` needs that."""
        return mx.array(np.ascontiguousarray(self.words)).view(_DTYPES[self.dtype])


HostTensors = tuple[HostTensor | None, ...]
"""Content of a file, by layer; None for an empty layer."""


@attrs.frozen
class CacheBlock:
    """Description of a file's content.

    Args:
        kind: "kv" for the KV tensors of a run of tokens, "state" for the layer states after the last token.
        prefix: Hash of all tokens before `start`, with the adapter that they were computed with as its key.
        start: Number of tokens before those of the file.
        tokens: Token ids, packed into bytes; empty for states.
    """

    kind: str
    prefix: bytes
    start: int
    tokens: bytes = b""

    @property
    def name(self) -> str:
        whole = self.prefix if self.kind == "state" else token_hash(self.prefix + self.tokens)
        return f"{self.kind}-{whole.hex()}.safetensors"

    @property
    def end(self) -> int:
        """Number of tokens up to and including the file's last one."""
        return self.start + len(self.tokens) // 4


def token_hash(tokens: bytes, origin: bytes = b"") -> bytes:
    return hashlib.blake2b(tokens, digest_size=16, key=origin).digest()


def write_block(path: Path, block: CacheBlock, fingerprint: str, tensors: HostTensors) -> None:
    """Write a file. Raises OSError: the file cannot be written."""
    metadata = {
        "format": _FORMAT,
        "version": VERSION,
        "fingerprint": fingerprint,
        "kind": block.kind,
        "prefix": block.prefix.hex(),
        "start": str(block.start),
        "tokens": block.tokens.hex(),
        "dtypes": " ".join(_NOTHING if tensor is None else tensor.dtype for tensor in tensors),
    }
    arrays = {str(index): tensor.words for index, tensor in enumerate(tensors) if tensor is not None}
    metadata["checksum"] = _checksum(metadata, tensors)
    try:
        save_file(arrays, path, metadata)
    except SafetensorError as error:  # only the disk can fail here
        raise OSError(str(error)) from error


def read_block(path: Path, fingerprint: str) -> CacheBlock:
    """Return a file's description; raises the same errors as `read_tensors`."""
    return _read(path, fingerprint, tensors=False)[0]


def read_tensors(path: Path, fingerprint: str) -> HostTensors:
    """Return a file's tensors after verifying its checksum. Raises BadFileError: the file cannot be used.
    Raises OSError: the file cannot be read.
    """
    return _read(path, fingerprint, tensors=True)[1]


def _read(path: Path, fingerprint: str, *, tensors: bool) -> tuple[CacheBlock, HostTensors]:
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            block = _block_of(metadata, path.name, fingerprint)
            if not tensors:
                return block, ()
            expected = metadata.pop("checksum")
            found = tuple(
                None if dtype == _NOTHING else HostTensor(dtype, file.get_tensor(str(index)))
                for index, dtype in enumerate(metadata["dtypes"].split())
            )
    except (SafetensorError, KeyError, ValueError) as error:
        raise BadFileError("it is cut off, or no file of ours") from error
    if expected != _checksum(metadata, found):
        raise BadFileError("its content has changed")
    return block, found


def _block_of(metadata: dict[str, str], name: str, fingerprint: str) -> CacheBlock:
    if [metadata.get(key) for key in ("format", "version", "fingerprint")] != [_FORMAT, VERSION, fingerprint]:
        raise BadFileError("it is another model's, or of another version")
    prefix, tokens = (bytes.fromhex(metadata[key]) for key in ("prefix", "tokens"))
    block = CacheBlock(metadata["kind"], prefix, int(metadata["start"]), tokens)
    if block.name != name:
        raise BadFileError("it has another's name")
    return block


def _checksum(metadata: dict[str, str], tensors: HostTensors) -> str:
    """Return a checksum of the metadata and all tensors at memory speed, which CRC-32 alone does not reach.

    Pages are reduced to weighted sums of their 64-bit words, modulo 2**64, and CRC-32 covers those sums.
    """
    check = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for tensor in tensors:
        if tensor is None:
            continue
        data = tensor.words.reshape(-1).view(np.uint8)
        whole = len(data) // _PAGE * _PAGE
        pages = data[:whole].view(np.uint64).reshape(-1, _PAGE // 8)
        check = zlib.crc32(f"{tensor.words.dtype.str} {tensor.words.shape}".encode(), check)
        check = zlib.crc32(np.einsum("ij,j->i", pages, _WEIGHTS), check)
        check = zlib.crc32(data[whole:], check)
    return str(check)


# Folder of a model's disk tier files, within a size limit shared by all models.
#
# Other processes may use the same folder: files appear atomically (renamed from a temporary name), and a
# missing file is no error. Only regular files with names that this module creates, in folders that it
# creates, are ever removed; these include partial files of a killed process.

log = get_logger()

FOLDER_NAME = "greenroom-prefixes"
_MODEL = re.compile(r"^[0-9a-f]{32}$")
_OURS = re.compile(rf"{NAME.pattern}|^(kv|state)-[0-9a-f]{{32}}\.\d+\.tmp$")

_SLACK = 16
"""Divisor of the limit: files are listed after that share of it was written, and evicted until that share is
free.
"""


class DiskIsLowError(Exception):
    """Error if writing a file would leave too little free disk space; nothing was written. `evicted`: names
    of this model's files that were evicted in vain.
    """

    def __init__(self, evicted: list[str]) -> None:
        super().__init__("the disk has too little room left")
        self.evicted = evicted


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class DiskFolder:
    """Files of one model; all methods but `read` belong to one thread.

    Args:
        fingerprint: Fingerprint of the model, 32 hexadecimal digits.
        limit: Size limit of all models' files, in bytes.
        floor: Bytes to leave free on the disk; 0 disables the check.
        free: Function that returns the free bytes of a folder's disk.
    """

    def __init__(
        self,
        root: Path,
        fingerprint: str,
        limit: int,
        floor: int = 0,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self.nbytes = self.evictions = self.removed = 0
        self.max_file = limit - limit // _SLACK
        self._fingerprint = fingerprint
        self._all = root / FOLDER_NAME
        self._home = self._all / fingerprint
        self._limit = limit
        self._floor = floor
        self._free = free
        self._unlisted = limit

    def scan(self) -> Iterator[CacheBlock]:
        """Yield the descriptions of all usable files of this model; remove unusable ones. Raises OSError: the
        folder cannot be created.
        """
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(0)
        for _, _, path in self._files():
            if path.parent == self._home and NAME.match(path.name):
                with contextlib.suppress(OSError):
                    try:
                        yield read_block(path, self._fingerprint)
                    except BadFileError as error:
                        self._discard(path, error)

    def read(self, name: str) -> HostTensors:
        """Return a file's tensors. Raises BadFileError: the file is unusable and has been removed. Raises
        OSError: the file is missing or cannot be read.
        """
        try:
            return read_tensors(self._home / name, self._fingerprint)
        except BadFileError as error:
            self._discard(self._home / name, error)
            raise

    def write(self, block: CacheBlock, tensors: HostTensors) -> list[str]:
        """Write a file atomically; return the names of this model's files that were evicted for it.

        The file is not synced to disk: the checksum detects damage by a power loss.

        Raises:
            DiskIsLowError: The disk is nearly full; the file was not written.
            OSError: The file cannot be written.
        """
        size = sum(tensor.words.nbytes for tensor in tensors if tensor is not None)
        size += 2 * len(block.tokens) + 4096 + 256 * len(tensors)
        path = self._home / block.name
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        evicted = self._make_room(size)
        if self._lacking(size):
            raise DiskIsLowError(evicted)
        try:
            temporary.touch(mode=0o600)
            write_block(temporary, block, self._fingerprint, tensors)
            written = temporary.stat().st_size
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self.nbytes += written
        return evicted

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            path = self._home / name
            with contextlib.suppress(OSError):
                size = path.stat().st_size
                path.unlink()
                self.nbytes -= size

    def touch(self, names: list[str]) -> None:
        """Mark files as recently used, the first most recently."""
        now = time.time_ns()
        for depth, name in enumerate(names):
            with contextlib.suppress(OSError):
                os.utime(self._home / name, ns=(now, now - 1000 * depth), follow_symlinks=False)

    def _discard(self, path: Path, reason: Exception) -> None:
        self.removed += 1
        log.warning("cached prefix removed", actor="model", file=path.name, reason=str(reason))
        with contextlib.suppress(OSError):
            path.unlink()

    def _make_room(self, size: int) -> list[str]:
        """Evict the least recently used files of all models; return the names of this model's."""
        self._unlisted += size
        lacking = self._lacking(size)
        if self._unlisted <= self._limit // _SLACK and not lacking:
            return []
        files = sorted(self._files())
        self.nbytes, self._unlisted = sum(nbytes for _, nbytes, _ in files), 0
        evicted: list[str] = []
        for _, nbytes, path in files:
            if self.nbytes + size <= self.max_file and lacking <= 0:
                break
            lacking -= nbytes
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                self.evictions += 1
            self.nbytes -= nbytes
            if path.parent == self._home:
                evicted.append(path.name)
            else:
                with contextlib.suppress(OSError):  # not empty yet
                    path.parent.rmdir()
        return evicted

    def _lacking(self, size: int) -> int:
        """Return the bytes missing on the disk for a file of this size; 0 if there is enough space."""
        return max(0, size + self._floor - self._free(self._home)) if self._floor else 0

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        for model in _listed(self._all):
            if _MODEL.match(model.name) and model.is_dir(follow_symlinks=False):
                for file in _listed(model.path):
                    if _OURS.match(file.name) and file.is_file(follow_symlinks=False):
                        with contextlib.suppress(FileNotFoundError):
                            status = file.stat(follow_symlinks=False)
                            yield status.st_mtime_ns, status.st_size, Path(file.path)


def _listed(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []

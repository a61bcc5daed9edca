"""The files of the disk tier: safetensors that say what they hold, with a checksum of all of it."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from greenroom.engine.prefix_cache.disk.block import CacheBlock, HostTensor, HostTensors

VERSION = "2"
"""Of the files and of the layout of what they hold."""

_FORMAT = "greenroom prefix"
_NOTHING = "none"
_PAGE = 4096
_WEIGHTS = np.arange(1, _PAGE // 4, 2, dtype=np.uint64)


class BadFileError(Exception):
    """Not ours, of another version, cut off or changed."""


def write_block(path: Path, block: CacheBlock, fingerprint: str, tensors: HostTensors) -> None:
    """Write a file.

    Args:
        fingerprint: Of the model that computed it.

    Raises:
        OSError: It cannot be written.
    """
    arrays = {str(index): tensor.words for index, tensor in enumerate(tensors) if tensor is not None}
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
    check = _checksum_of(metadata)
    for array in arrays.values():
        check = _add(check, array)
    metadata["checksum"] = str(check)
    try:
        save_file(arrays, path, metadata)
    except SafetensorError as error:  # what else than the disk could refuse
        raise OSError(str(error)) from error


def read_block(path: Path, fingerprint: str) -> CacheBlock:
    """Return what a file says that it holds; raises what `read_tensors` does."""
    try:
        with safe_open(path, framework="numpy") as file:
            return _block_of(file.metadata(), path.name, fingerprint)
    except SafetensorError as error:
        raise BadFileError("it is cut off, or no file of ours") from error


def read_tensors(path: Path, fingerprint: str) -> HostTensors:
    """Return all that a file holds, checked.

    Raises:
        BadFileError: It cannot be used.
        OSError: It cannot be read.
    """
    found: list[HostTensor | None] = []
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata()
            _block_of(metadata, path.name, fingerprint)
            expected = metadata.pop("checksum", None)
            check = _checksum_of(metadata)
            for index, dtype in enumerate(metadata["dtypes"].split()):
                words = None if dtype == _NOTHING else file.get_tensor(str(index))
                found.append(None if words is None else HostTensor(dtype, words))
                check = check if words is None else _add(check, words)
    except (SafetensorError, KeyError) as error:
        raise BadFileError("it is cut off, or no file of ours") from error
    if expected != str(check):
        raise BadFileError("its content has changed")
    return tuple(found)


def _block_of(metadata: dict[str, str] | None, name: str, fingerprint: str) -> CacheBlock:
    known = metadata or {}
    if [known.get(key) for key in ("format", "version", "fingerprint")] != [_FORMAT, VERSION, fingerprint]:
        raise BadFileError("it is another model's, or of another version")
    try:
        tokens = bytes.fromhex(known["tokens"])
        block = CacheBlock(known["kind"], bytes.fromhex(known["prefix"]), int(known["start"]), tokens)
    except (KeyError, ValueError) as error:
        raise BadFileError("it is no file of ours") from error
    if block.name != name:
        raise BadFileError("it has another's name")
    return block


def _checksum_of(metadata: dict[str, str]) -> int:
    return zlib.crc32(json.dumps(metadata, sort_keys=True).encode())


def _add(check: int, array: Any) -> int:
    """Return a checksum with an array added, in order, at the speed of memory, which CRC-32 alone has not.

    Pages become weighted sums of their 64-bit words, modulo 2**64; CRC-32 is of those.
    """
    data = array.reshape(-1).view(np.uint8)
    whole = len(data) // _PAGE * _PAGE
    pages = data[:whole].view(np.uint64).reshape(-1, _PAGE // 8)
    check = zlib.crc32(f"{array.dtype.str} {array.shape}".encode(), check)
    check = zlib.crc32(np.einsum("ij,j->i", pages, _WEIGHTS), check)
    return zlib.crc32(data[whole:], check)

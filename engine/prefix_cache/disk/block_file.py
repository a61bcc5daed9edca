"""The files of the disk tier: safetensors that say what they hold, and prove that they hold it whole.

Two kinds. A *span* file holds what span layers keep for a run of tokens, a *state* file what state layers
keep after the last token of a prefix.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from greenroom.engine.prefix_cache.disk.block import CacheBlock, Tensor, Tensors

VERSION = "1"
"""Of the files and of the layout of what they hold."""

_FORMAT = "greenroom prefix"
_LARGEST_HEADER = 16 * 1024 * 1024
_SIZES = {"BF16": 2, "F16": 2, "F32": 4, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4}


class BadFileError(Exception):
    """Not ours, of another version, cut off or changed."""


def write_kept(stream: BinaryIO, kept: CacheBlock, digest: str, tensors: Tensors) -> None:
    """Write a file's bytes.

    Args:
        digest: Of the model that computed it.
    """
    header: dict[str, Any] = {}
    at = 0
    for index, tensor in enumerate(tensors):
        if tensor is not None:
            end = at + len(tensor.data)
            header[str(index)] = {"dtype": tensor.dtype, "shape": [*tensor.shape], "data_offsets": [at, end]}
            at = end
    metadata = {
        "format": _FORMAT,
        "version": VERSION,
        "digest": digest,
        "kind": kept.kind,
        "prefix": kept.prefix.hex(),
        "start": str(kept.start),
        "tokens": base64.b64encode(kept.tokens).decode(),
        "tensors": str(len(tensors)),
        "sums": " ".join(f"{_sum(tensor.data):x}" for tensor in tensors if tensor is not None),
    }
    header["__metadata__"] = metadata
    metadata["seal"] = _seal(header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    stream.write(struct.pack("<Q", len(text)) + text)
    for tensor in tensors:
        if tensor is not None:
            stream.write(tensor.data)


def read_kept(path: Path, digest: str) -> CacheBlock:
    """What a file holds, by its header alone; raises what `read_tensors` does."""
    with path.open("rb") as stream:
        return _read_header(stream, path.name, digest)[0]


def read_tensors(path: Path, digest: str) -> Tensors:
    """All that a file holds, proved.

    Raises:
        BadFileError: It cannot be used.
        OSError: It cannot be read.
    """
    with path.open("rb") as stream:
        _, header = _read_header(stream, path.name, digest)
        data = np.fromfile(stream, dtype=np.uint8)
    metadata = header["__metadata__"]
    sums = iter(metadata["sums"].split())
    found: list[Tensor | None] = []
    for index in range(int(metadata["tensors"])):
        entry = header.get(str(index))
        if entry is None:
            found.append(None)
            continue
        begin, end = entry["data_offsets"]
        piece = data[begin:end]
        if len(piece) != end - begin or f"{_sum(piece):x}" != next(sums):
            raise BadFileError("its data have changed")
        found.append(Tensor(entry["dtype"], tuple(entry["shape"]), piece))
    return tuple(found)


def _read_header(stream: BinaryIO, name: str, digest: str) -> tuple[CacheBlock, dict[str, Any]]:
    size = os.fstat(stream.fileno()).st_size
    try:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > min(size - 8, _LARGEST_HEADER):
            raise BadFileError("it is cut off")
        header: dict[str, Any] = json.loads(stream.read(length))
        metadata: dict[str, str] = header["__metadata__"]
        if metadata["format"] != _FORMAT or metadata["version"] != VERSION or metadata["digest"] != digest:
            raise BadFileError("it is another model's, or of another version")
        if metadata.pop("seal") != _seal(header):
            raise BadFileError("its header has changed")
        tokens = base64.b64decode(metadata["tokens"], validate=True)
        kept = CacheBlock(metadata["kind"], bytes.fromhex(metadata["prefix"]), int(metadata["start"]), tokens)
        ends = [_end_of(entry) for key, entry in header.items() if key != "__metadata__"]
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadFileError("it is no file of ours") from error
    if kept.name != name or 8 + length + max(ends, default=0) != size:
        raise BadFileError("it is cut off, or has another's name")
    return kept, header


def _end_of(entry: dict[str, Any]) -> int:
    begin, end = entry["data_offsets"]
    if end - begin != math.prod(entry["shape"]) * _SIZES[entry["dtype"]]:
        raise BadFileError("its shapes do not fit its data")
    return int(end)


def _seal(header: dict[str, Any]) -> str:
    text = json.dumps(header, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _sum(data: Any) -> int:
    """Sum of the 64-bit words: finds torn and changed files at the speed of memory, which a CRC does not."""
    words = len(data) // 8 * 8
    tail = int.from_bytes(data[words:].tobytes(), "little")
    return (int(data[:words].view(np.uint64).sum()) + tail) & (2**64 - 1)

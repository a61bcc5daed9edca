"""The files of the disk tier: safetensors that say what they hold, with a checksum of all of it.

A file's name is made from the tokens, so the same content always has the same name: whoever writes it second
changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

VERSION = "4"
"""Of the files, of the layout of what they hold, and of how our patches have models compute it."""

NAME = re.compile(r"^(kv|state)-[0-9a-f]{32}\.safetensors$")

_FORMAT = "greenroom prefix"
_NOTHING = "none"
_DTYPES = {str(each): each for each in vars(mx).values() if isinstance(each, mx.Dtype)}
_PAGE = 4096
_WEIGHTS = np.arange(1, _PAGE // 4, 2, dtype=np.uint64)


class BadFileError(Exception):
    """Not ours, of another version, cut off or changed."""


@attrs.frozen(eq=False)
class HostTensor:
    """The numbers of an array outside MLX, which has types that NumPy lacks.

    Args:
        dtype: MLX's name of their type.
        words: NumPy array of that shape: the same bits as unsigned integers.
    """

    dtype: str
    words: Any

    @classmethod
    def view(cls, array: mx.array) -> HostTensor:
        """Return an evaluated array's numbers, not copied: they keep its buffer alive."""
        buffer: Any = array  # which type checkers know from Python 3.12 on only
        data: Any = memoryview(buffer).cast("B") if array.size else b""
        words = np.frombuffer(data, f"u{array.dtype.size}").reshape(array.shape)
        return cls(str(array.dtype), words)

    def part(self, start: int, stop: int | None) -> HostTensor:
        """Return a part of the third axis, not copied; all of it if there is no end."""
        return self if stop is None else HostTensor(self.dtype, self.words[:, :, start:stop])

    def to_array(self) -> mx.array:
        """Return the array, copied."""
        return mx.array(self.words).view(_DTYPES[self.dtype])


HostTensors = tuple[HostTensor | None, ...]
"""What a file holds, layer after layer; None where a layer holds nothing."""


@attrs.frozen
class CacheBlock:
    """What a file is for.

    Args:
        kind: "kv" for the KV tensors of a run of tokens, "state" for the states after the last one.
        prefix: Hash of all tokens before `start`.
        start: Tokens before those of the file.
        tokens: Packed; empty for states.
    """

    kind: str
    prefix: bytes
    start: int
    tokens: bytes = b""

    @property
    def name(self) -> str:
        """Its file's name."""
        whole = self.prefix if self.kind == "state" else token_hash(self.prefix + self.tokens)
        return f"{self.kind}-{whole.hex()}.safetensors"

    @property
    def end(self) -> int:
        """Tokens up to its last one."""
        return self.start + len(self.tokens) // 4


def token_hash(tokens: bytes) -> bytes:
    """Return the hash by which packed tokens are known."""
    return hashlib.blake2b(tokens, digest_size=16).digest()


def write_block(path: Path, block: CacheBlock, fingerprint: str, tensors: HostTensors) -> None:
    """Write a file.

    Args:
        fingerprint: Of the model that computed it.

    Raises:
        OSError: It cannot be written.
    """
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
    except SafetensorError as error:  # what else than the disk could refuse
        raise OSError(str(error)) from error


def read_block(path: Path, fingerprint: str) -> CacheBlock:
    """Return what a file says that it holds; raises what `read_tensors` does."""
    return _read(path, fingerprint, tensors=False)[0]


def read_tensors(path: Path, fingerprint: str) -> HostTensors:
    """Return all that a file holds, checked.

    Raises:
        BadFileError: It cannot be used.
        OSError: It cannot be read.
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
    """Return a checksum of everything, in order, at the speed of memory, which CRC-32 alone has not.

    Pages become weighted sums of their 64-bit words, modulo 2**64; CRC-32 is of those.
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

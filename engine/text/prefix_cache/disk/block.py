"""Files of the disk tier: safetensors with a description of their content and a checksum.

A file's name is derived from its tokens, so equal content has an equal name, and writing it twice is
harmless.
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
    """Data of an array outside MLX, which has dtypes that NumPy lacks.

    Args:
        dtype: MLX's name of the dtype.
        words: NumPy array of the same shape, with the same bits as unsigned integers.
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
        prefix: Hash of all tokens before `start`.
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


def token_hash(tokens: bytes) -> bytes:
    """Return the hash that identifies token ids, given as bytes (int32)."""
    return hashlib.blake2b(tokens, digest_size=16).digest()


def write_block(path: Path, block: CacheBlock, fingerprint: str, tensors: HostTensors) -> None:
    """Write a file.

    Args:
        fingerprint: Fingerprint of the model that computed the tensors.

    Raises:
        OSError: The file cannot be written.
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
    except SafetensorError as error:  # only the disk can fail here
        raise OSError(str(error)) from error


def read_block(path: Path, fingerprint: str) -> CacheBlock:
    """Return a file's description; raises the same errors as `read_tensors`."""
    return _read(path, fingerprint, tensors=False)[0]


def read_tensors(path: Path, fingerprint: str) -> HostTensors:
    """Return a file's tensors after verifying its checksum.

    Raises:
        BadFileError: The file cannot be used.
        OSError: The file cannot be read.
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

"""What a file of the disk tier is for, and the tensors in it.

A file's name is made from the tokens, so the same content always has the same name: whoever writes it second
changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import attrs
import mlx.core as mx
import numpy as np

NAME = re.compile(r"^(kv|state)-[0-9a-f]{32}\.safetensors$")


_UNSIGNED = (mx.bool_, mx.uint8, mx.uint16, mx.uint32, mx.uint64)
_SIGNED = (mx.int8, mx.int16, mx.int32, mx.int64)
_DTYPES = {str(dtype): dtype for dtype in (*_UNSIGNED, *_SIGNED, mx.float16, mx.bfloat16, mx.float32)}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


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
    def view(cls, array: Any) -> HostTensor:
        """Return an evaluated array's numbers, not copied: they keep its buffer alive."""
        data = memoryview(array).cast("B") if array.size else b""
        words = np.frombuffer(data, f"u{array.dtype.size}").reshape(array.shape)
        return cls(_NAMES[array.dtype], words)

    def part(self, start: int, stop: int | None) -> HostTensor:
        """Return a part of the third axis, not copied; all of it if there is no end."""
        return self if stop is None else HostTensor(self.dtype, self.words[:, :, start:stop])

    def to_array(self) -> mx.array:
        """Return the array."""
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
        whole = self.prefix if self.kind == "state" else _hash(self.prefix + self.tokens)
        return f"{self.kind}-{whole.hex()}.safetensors"

    @property
    def end(self) -> int:
        """Tokens up to its last one."""
        return self.start + len(self.tokens) // 4


def prefix_hashes(tokens: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Return hashes of the first so many packed tokens, for each length, ascending."""
    running, at, found = hashlib.blake2b(digest_size=16), 0, list[bytes]()
    for length in lengths:
        running.update(tokens[at * 4 : length * 4])
        at = length
        found.append(running.copy().digest())
    return found


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()

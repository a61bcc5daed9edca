"""What a file of the disk tier is for, and the bytes in it.

A file's name is made from the tokens, so the same content always has the same name: whoever writes it second
changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import attrs

NAME = re.compile(r"^(span|state)-[0-9a-f]{32}\.safetensors$")


@attrs.frozen(eq=False)
class Tensor:
    """One array as plain bytes.

    Args:
        dtype: The format's name of it.
        data: `uint8`, contiguous, of as many bytes as the shape asks for.
    """

    dtype: str
    shape: tuple[int, ...]
    data: Any


Tensors = tuple[Tensor | None, ...]


@attrs.frozen
class CacheBlock:
    """What a file is for.

    Args:
        prefix: Hash of all tokens before `start`.
        start: Tokens before those of the file.
        tokens: Packed; empty in a state file.
    """

    kind: str
    prefix: bytes
    start: int
    tokens: bytes = b""

    @property
    def name(self) -> str:
        """Its file's name."""
        if self.kind == "state":
            return f"state-{self.prefix.hex()}.safetensors"
        whole = hashlib.blake2b(self.prefix + self.tokens, digest_size=16)
        return f"span-{whole.hexdigest()}.safetensors"

    @property
    def end(self) -> int:
        """Tokens up to its last one."""
        return self.start + len(self.tokens) // 4


def prefix_hashes(tokens: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Hashes of the first so many packed tokens, for each length, ascending."""
    running, at, found = hashlib.blake2b(digest_size=16), 0, list[bytes]()
    for length in lengths:
        running.update(tokens[at * 4 : length * 4])
        at = length
        found.append(running.copy().digest())
    return found

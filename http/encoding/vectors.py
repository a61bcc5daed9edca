"""JSON of embedding vectors."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

import msgspec

from greenroom.schemas.events.result_events import Vector

_DIGITS = 9
"""Significant digits that round-trip a float32."""
_SMALLEST = 1e-300
_UNIT = 1e-5
"""Largest deviation from length 1 that counts as a unit vector."""

_encode = msgspec.json.Encoder().encode


def in_order(vectors: Iterable[Vector]) -> list[Vector]:
    return sorted(vectors, key=lambda vector: vector.index)


def numbers_of(vectors: Sequence[Vector]) -> int:
    """Return the total number of vector components."""
    return sum(len(vector.values) for vector in vectors) // 4


def vector_json(vector: Vector, *, unit: bool = False) -> bytes:
    """Return a vector as a JSON array of numbers with only significant digits.

    Args:
        unit: Scale the vector to length 1.
    """
    import numpy as np  # deferred: the engine imports it anyway, and the server starts faster without

    values = np.frombuffer(vector.values, "<f4").astype(np.float64)
    length = float(np.linalg.norm(values)) if unit else 1.0
    if length and abs(length - 1) > _UNIT:
        values /= length
    exponents = np.floor(np.log10(np.maximum(np.abs(values), _SMALLEST)))
    scale = 10.0 ** np.clip(_DIGITS - 1 - exponents, 0, 22)
    return _encode((np.round(values * scale) / scale).tolist())


def vector_base64(vector: Vector) -> bytes:
    """Return a vector as a JSON string: base64 of little-endian float32, as OpenAI writes it."""
    return b'"%b"' % base64.b64encode(vector.values)

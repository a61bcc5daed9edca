"""Row lookup in DeepSeek V4.1's quantized hash tables, on the CPU, that leaves the default device alone."""

from __future__ import annotations

import sys
from typing import Any

import mlx.core as mx

_MODULE = "mlx_vlm.models.deepseek_v41.engram"


def gather_without_default_device() -> None:
    """Replace mlx-vlm's lookup, if its module is imported.

    The library's version enters `mx.stream(mx.cpu)`, which changes the default device of the whole process:
    other models' threads would meanwhile build operations for the CPU.
    """
    if (library := sys.modules.get(_MODULE)) is not None:
        library.QuantizedEngramEmbedding.__call__ = _gather


def _gather(table: Any, indices: mx.array) -> mx.array:
    """Return the rows `[..., width]` in bfloat16, gathered on the CPU, dequantized on the default device."""
    packed = [table.weight, table.scales] + ([] if table.biases is None else [table.biases])
    rows = [mx.take(part, indices, axis=0, stream=mx.cpu) for part in packed]
    mx.eval(rows)
    biases = rows[2] if len(rows) == 3 else None
    return mx.dequantize(
        rows[0],
        rows[1],
        biases,
        group_size=table.group_size,
        bits=table.bits,
        mode=table.mode,
        dtype=mx.bfloat16,
    )

"""Check that mlx-lm reads weights that AutoAWQ or GPTQ has packed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from greenroom.engine.catalog.files.text_config import text_config

_BITS = 4


def check_packing(config: Mapping[str, Any], weights: Collection[str]) -> None:
    """Make sure that mlx-lm can unpack a model's weights.

    Args:
        config: What config.json holds.
        weights: The names of the tensors that there are.

    Raises:
        ValueError: One sentence: they are packed otherwise than it says, or in a way that is not read.
    """
    packing = config.get("quantization_config") or text_config(config).get("quantization_config")
    if "quantization" in config or not isinstance(packing, dict):
        return
    method = str(packing.get("quant_method")).upper()
    if method not in ("AWQ", "GPTQ"):
        return
    if not any(name.endswith(".qweight") for name in weights):
        raise ValueError(f"its config.json says that {method} packed its weights, but none of them is packed")
    if method == "GPTQ" or any(name.endswith(".g_idx") for name in weights):
        raise ValueError("its weights are packed by GPTQ, in an order that mlx-lm does not read")
    bits = packing.get("bits", _BITS)
    if bits != _BITS:
        raise ValueError(
            f"its weights have {str(bits)[:10]} bits each by AWQ, of which mlx-lm reads {_BITS} alone"
        )

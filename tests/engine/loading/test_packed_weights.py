"""AWQ weights in a form that mlx-lm reads are supported; GPTQ and other packings are rejected by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

from greenroom.engine.loading.load_model import load_model
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import Settings

GROUP = 32
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Order of the columns within a packed integer. Source: AutoAWQ, `WQLinear_GEMM`."""


def pack(matrix: Any) -> Any:
    """Return 4-bit columns packed into integers of eight."""
    columns = matrix.reshape(matrix.shape[0], -1, 8).astype(np.uint32)
    packed = np.zeros(columns.shape[:2], np.uint32)
    for place, column in enumerate(ORDER):
        packed |= columns[:, :, column] << np.uint32(4 * place)
    return packed.view(np.int32)


def to_awq(weight: mx.array) -> dict[str, mx.array]:
    """Return a matrix in AutoAWQ's format."""
    values = np.array(weight.astype(mx.float32)).T  # [inputs, outputs]
    grouped = values.reshape(-1, GROUP, values.shape[1])
    low, high = grouped.min(1), grouped.max(1)
    scales = np.maximum(high - low, 1e-6) / 15
    zeros = np.clip(np.round(-low / scales), 0, 15)
    levels = np.clip(np.round(grouped / scales[:, None]) + zeros[:, None], 0, 15).reshape(values.shape)
    return {
        "qweight": mx.array(pack(levels)),
        "qzeros": mx.array(pack(zeros)),
        "scales": mx.array(scales.astype(np.float16)),
    }


@pytest.fixture
def packed(tiny_model: Callable[..., Path], tmp_path: Path) -> Path:
    """Return the folder of a tiny model in AutoAWQ's format."""
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path / "packed")
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    for name in [name for name in weights if name.endswith("_proj.weight")]:
        parts = to_awq(weights.pop(name))
        weights |= {f"{name.removesuffix('weight')}{part}": value for part, value in parts.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    change(folder, AWQ)
    return folder


def change(folder: Path, packing: dict[str, Any]) -> None:
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": packing}
    (folder / "config.json").write_text(json.dumps(config))


def test_a_model_that_awq_has_packed_is_read(packed: Path, tiny_model: Callable[..., Path]) -> None:
    whole, read = load_model(tiny_model("qwen3"), Settings()), load_model(packed, Settings())
    assert isinstance(read.layers[0].mlp.up_proj, nn.QuantizedLinear)
    layer, plain = read.layers[0].mlp.up_proj, whole.layers[0].mlp.up_proj.weight
    restored = mx.dequantize(layer.weight, layer.scales, layer.biases, layer.group_size, layer.bits)
    step = float(layer.scales.max())
    assert float(mx.abs(restored - plain).max()) < step, "each weight is off by a step of its group at most"


def refusal(folder: Path) -> str:
    with pytest.raises(ProblemError) as refused:
        load_model(folder, Settings())
    assert (refused.value.problem.status, refused.value.problem.code) == (503, "load_failed")
    return refused.value.problem.detail


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_weights_that_are_not_packed_as_told_are_refused(
    tiny_model: Callable[..., Path], tmp_path: Path, method: str
) -> None:
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path / "unpacked")
    change(folder, {"quant_method": method})
    assert f"says that {method.upper()} packed its weights, but none of them is packed" in refusal(folder)


def test_what_is_not_read_is_refused_by_what_it_is(packed: Path) -> None:
    change(packed, AWQ | {"quant_method": "gptq"})
    assert "its weights are packed by GPTQ, in an order that mlx-lm does not read" in refusal(packed)
    change(packed, AWQ | {"bits": 8})
    assert "its weights have 8 bits each by AWQ, of which mlx-lm reads 4 alone" in refusal(packed)

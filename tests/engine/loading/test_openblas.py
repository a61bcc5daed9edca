"""Linear layers that multiply many rows by the system's OpenBLAS, in processes that find one."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

from greenroom.engine.loading.read_weights import load_arrays
from greenroom.tests.support.models.tiny_models import TinyModel

LAYERS = """
import json, sys
from greenroom.actors.engines.engines import Engines
from greenroom.schemas.settings.settings import Settings

Engines(Settings())  # as a server begins
import mlx.core as mx
from mlx import nn
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.openblas import least_chunk, multiply_by_openblas

use_device(Settings(device="cpu"))
half = nn.Linear(64, 128)
half.set_dtype(mx.bfloat16)
whole = nn.Linear(128, 64, bias=False)
model = nn.Sequential(half, nn.QuantizedLinear.from_linear(nn.Linear(128, 128)), whole,
    nn.QuantizedLinear(64, 32, False, 32, 4, "mxfp4"))
inputs = [mx.random.normal((2, rows, 64)).astype(mx.bfloat16) for rows in (1, 3, 4, 40)]
before = [model(x) for x in inputs]
mx.eval(before)
multiply_by_openblas(model)
far = max(mx.abs(model(x) - y).max().item() / mx.abs(y).max().item() for x, y in zip(inputs, before))
same = all(model(x).dtype == y.dtype for x, y in zip(inputs, before))
print(json.dumps([far, same and least_chunk() == 32, [type(layer).__name__ for layer in model.layers]]))
"""


@pytest.fixture
def with_openblas(tmp_path: Path) -> dict[str, str]:
    """Environment of a process that finds a libopenblas.so.0: MLX's own BLAS by that name."""
    spec = importlib.util.find_spec("mlx")
    assert spec is not None
    assert spec.submodule_search_locations
    libraries = Path(spec.submodule_search_locations[0]).parent / "mlx_cpu.libs"
    if not (found := [*libraries.glob("libblas-*.so*")]):
        pytest.skip("MLX brings no BLAS of its own here")
    shutil.copy(found[0], tmp_path / "libopenblas.so.0")
    paths = os.pathsep.join((str(tmp_path), str(libraries)))
    return {**os.environ, "LD_LIBRARY_PATH": paths, "LD_DEBUG": "bindings"}


def test_layers_of_packed_and_of_halved_weights(with_openblas: dict[str, str]) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LAYERS], env=with_openblas, capture_output=True, text=True, check=True
    )
    far, same, layers = json.loads(run.stdout)
    assert far < 0.02, "bfloat16 has 8 bits"
    assert same
    assert layers == ["_PlainLayer", "_PackedLayer", "_PlainLayer", "_PackedLayer"]
    bound = [line for line in run.stderr.splitlines() if "libmlx" in line and "cblas_sgemm'" in line]
    assert bound
    assert all("libopenblas.so.0 [0]: normal symbol" in line for line in bound)


def test_doctor_names_it(with_openblas: dict[str, str]) -> None:
    command = [sys.executable, "-m", "greenroom.engine.loading.examine_machine", "cpu"]
    run = subprocess.run(command, env=with_openblas, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout)["device"] == "cpu with OpenBLAS"


SIZES = """
import json, sys
from pathlib import Path
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.load_size import load_size
from greenroom.schemas.settings.settings import Settings

folder = Path(sys.argv[1])
print(json.dumps([
    load_size(folder, detect(folder), Settings(device=device, dtype=dtype)).working
    for dtype in ("bfloat16", "float32") for device in ("cpu", "gpu")
]))
"""


def test_the_largest_matrix_as_it_is_unpacked_is_part_of_a_loads_size(
    with_openblas: dict[str, str], tiny_model: TinyModel, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_model("qwen3"), tmp_path / "model"))
    (weights,) = folder.glob("*.safetensors")
    halves = {name: array.astype(mx.bfloat16) for name, array in load_arrays(weights).items()}
    mx.save_safetensors(str(weights), halves)
    run = subprocess.run(
        [sys.executable, "-c", SIZES, folder],
        env=with_openblas | {"LD_DEBUG": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    half, half_on_gpu, whole, whole_on_gpu = json.loads(run.stdout)
    largest = max(array.size for name, array in halves.items() if array.ndim == 2 and "embed" not in name)
    assert half - half_on_gpu == 4 * largest
    assert whole == whole_on_gpu

"""Tests of loading: progress, abandoning, and one-line errors for broken files."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.kv_cache.size_model import CacheSizeModel
from greenroom.engine.loading.devices import computes_on_gpu
from greenroom.engine.loading.libraries import LoadAbandonedError
from greenroom.engine.loading.load_model import load_model
from greenroom.engine.loading.load_size import FIRST_TOKENS, load_size
from greenroom.engine.loading.read_weights import cast_weights
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.setting_groups import Dtype
from greenroom.schemas.settings.settings import Settings

TinyModel = Callable[..., Path]


@pytest.fixture
def copy(tiny_model: TinyModel, tmp_path: Path) -> Path:
    """Copy of a tiny model's folder, for tests that damage it."""
    return shutil.copytree(tiny_model("qwen3"), tmp_path / "broken-model")


def refusal(
    folder: Path, settings: Settings | None = None, expected: tuple[int, str] = (503, "load_failed")
) -> str:
    """Load a folder, and return the detail of the expected problem."""
    with pytest.raises(ProblemError) as caught:
        load_model(folder, settings or Settings())
    problem = caught.value.problem
    assert (problem.status, problem.code) == expected
    assert str(folder.parent) not in problem.detail
    assert "\n" not in problem.detail
    assert "broken-model" in problem.detail
    return problem.detail


def test_progress_rises_to_one_layer_by_layer(tiny_model: TinyModel) -> None:
    reported: list[float] = []
    load_model(tiny_model("qwen3"), Settings(), reported.append)
    assert reported == sorted(reported)
    assert reported[-1] == 1.0
    assert len(reported) >= 4, "embeddings, two layers, the rest"


def test_a_load_can_be_abandoned_between_layers(tiny_model: TinyModel) -> None:
    reported: list[float] = []
    with pytest.raises(LoadAbandonedError):
        load_model(tiny_model("qwen3"), Settings(), reported.append, lambda: len(reported) == 3)
    assert len(reported) == 3


def test_a_truncated_file_is_refused(copy: Path) -> None:
    weights = copy / "model.safetensors"
    whole = weights.read_bytes()
    for length in (len(whole) - 1000, len(whole) // 2, 1000):
        weights.write_bytes(whole[:length])
        assert "model.safetensors is no whole safetensors file" in refusal(copy)


def _header(header: dict[str, Any]) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        b"\xff" * 64,
        (2**40).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (9).to_bytes(8, "little") + b'{"a": {}}',
        _header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}}) + bytes(8),
        _header({"a": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 8]}}) + bytes(8),
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n",
    ],
    ids=[
        "empty",
        "short",
        "noise",
        "huge header",
        "list",
        "no offsets",
        "wrong shape",
        "immense shape",
        "lfs pointer",
    ],
)
def test_what_is_no_weights_file_is_refused(copy: Path, content: bytes) -> None:
    (copy / "model.safetensors").write_bytes(content)
    assert "is no whole safetensors file" in refusal(copy)


def test_a_folder_without_weights_is_refused(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    assert "no weights" in refusal(copy)


def test_a_missing_tensor_is_named(copy: Path) -> None:
    weights: Any = mx.load(str(copy / "model.safetensors"))
    mx.eval(weights)
    del weights["model.layers.1.mlp.up_proj.weight"]
    mx.save_safetensors(str(copy / "model.safetensors"), weights)
    assert "model.layers.1.mlp.up_proj.weight" in refusal(copy)


def test_a_config_that_fits_no_weights_is_refused(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "hidden_size": 96}))
    refusal(copy)
    del config["num_hidden_layers"]
    (copy / "config.json").write_text(json.dumps(config))
    assert "num_hidden_layers" in refusal(copy)


def test_a_config_that_names_code_is_refused_without_running_it(copy: Path) -> None:
    (copy / "evil.py").write_text(f"open({str(copy / 'ran')!r}, 'w')")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "model_file": "evil.py"}))
    refusal(copy)
    assert not (copy / "ran").exists()


def run_code(folder: Path, code: str, expected: tuple[int, str] = (503, "load_failed")) -> str:
    """Load a model with that code of its own, and return the detail of the expected problem."""
    (folder / "architecture.py").write_text(code)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_file": "architecture.py"}))
    return refusal(folder, Settings(trust_remote_code=True), expected)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("exit()", "its code ended the program."),
        ("import sys; sys.exit('no weights today')", "its code ended the program: exit('no weights today')."),
        ("raise ValueError('no such thing')", "no such thing"),
        ("class Panic(BaseException): pass\nraise Panic('of native code')", "of native code"),
        ("syntax error", "invalid syntax"),
    ],
)
def test_code_that_ends_or_fails_is_a_load_failure(copy: Path, code: str, said: str) -> None:
    assert said in run_code(copy, code)


@pytest.mark.parametrize(
    "code", ["try:\n    import absent_module\nexcept ImportError:\n    exit(1)", "import absent_module.inner"]
)
def test_code_that_needs_a_package_says_which(copy: Path, code: str) -> None:
    assert "package absent_module" in run_code(copy, code, (501, "library_missing"))


def test_an_architecture_names_the_package_that_it_needs(copy: Path) -> None:
    """mlx-lm's file for OLMo calls `exit` if that package is missing."""
    if importlib.util.find_spec("hf_olmo") is not None:
        pytest.skip("it is installed")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "model_type": "olmo"}))
    assert "pip install ai2-olmo" in refusal(copy, expected=(501, "library_missing"))


def test_an_unknown_architecture_is_called_so(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "model_type": "unheard_of"}))
    assert "unheard_of not supported" in refusal(copy)


def split(folder: Path) -> list[str]:
    """Split the weights into two files with an index, as in large models."""
    weights: Any = mx.load(str(folder / "model.safetensors"))
    mx.eval(weights)
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for file, part in zip(files, (names[::2], names[1::2]), strict=True):
        mx.save_safetensors(str(folder / file), {name: weights[name] for name in part})
    index = {name: files[position % 2] for position, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return files


def test_weights_may_come_in_several_files(copy: Path, tiny_model: TinyModel) -> None:
    split(copy)
    one = dict(tree_flatten(load_model(tiny_model("qwen3"), Settings()).parameters()))
    two = dict(tree_flatten(load_model(copy, Settings()).parameters()))
    assert one.keys() == two.keys()
    assert all(mx.array_equal(one[name], two[name]) for name in one)


def test_a_missing_file_of_several_is_named(copy: Path) -> None:
    files = split(copy)
    (copy / files[1]).unlink()
    assert files[1] in refusal(copy)


def test_weights_take_the_type_that_was_asked_for(tiny_model: TinyModel) -> None:
    folder = tiny_model("qwen3")
    types = {dtype: _types(load_model(folder, Settings(dtype=dtype))) for dtype in ("auto", "bfloat16")}
    assert types == {"auto": {mx.float32}, "bfloat16": {mx.bfloat16}}


def _types(model: Any) -> set[mx.Dtype]:
    return {value.dtype for _, value in tree_flatten(model.parameters())}


@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16"])
def test_quantized_models_load_in_float32_on_a_cpu(
    tiny_model: TinyModel, tmp_path: Path, dtype: Dtype
) -> None:
    from mlx_lm.utils import load_config, quantize_model, save_config

    folder = tiny_model("llama")
    model, config = quantize_model(load_model(folder, Settings()), load_config(folder), 32, 4)
    quantized = tmp_path / "quantized"
    quantized.mkdir()
    cast_weights(model, Settings(dtype="bfloat16"))
    mx.save_safetensors(str(quantized / "model.safetensors"), dict(tree_flatten(model.parameters())))
    save_config(config, quantized / "config.json")
    settings, charged = Settings(dtype=dtype), list[int]()
    again = load_model(quantized, settings, reserve_memory=charged.append)
    computed = mx.bfloat16 if dtype == "bfloat16" or (dtype == "auto" and computes_on_gpu()) else mx.float32
    assert _types(again) == {mx.uint32, computed}
    known = load_size(quantized, detect(quantized), settings)
    assert sum(charged) == pytest.approx(known.weights, rel=0.03)
    assert CacheSizeModel.of(again).nbytes(1, FIRST_TOKENS) == pytest.approx(known.cache, rel=0.1)
    cast_weights(model, Settings(dtype="float32" if computed == mx.float32 else "bfloat16"))
    prompt = mx.array([[100, 101, 102]])
    assert mx.array_equal(again(prompt), model(prompt))


def test_a_device_that_is_not_there_is_refused(tiny_model: TinyModel) -> None:
    if mx.is_available(mx.gpu):
        pytest.skip("this machine has a GPU")
    with pytest.raises(ProblemError, match="no GPU"):
        load_model(tiny_model("qwen3"), Settings(device="gpu"))

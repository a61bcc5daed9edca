"""Towers can be split while `mx.compile` stays enabled for all other code."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.loading.libraries import import_vision_libraries
from greenroom.engine.vision import chunked_encoder
from greenroom.engine.vision.chunked_encoder import ChunkedEncoder, attending_functions, uncompile_attention
from greenroom.tests.support.engines.vision_engines import loaded, picture, prepared
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Enable compilation as in a server; other tests disable it: a kernel costs half a second on a CPU."""
    monkeypatch.delenv("MLX_DISABLE_COMPILE")
    mx.enable_compile()
    yield
    mx.disable_compile()


@pytest.mark.usefixtures("compiling")
def test_other_models_run_compiled_while_a_tower_is_split() -> None:
    traced = 0

    @mx.compile
    def function(array: mx.array) -> mx.array:
        nonlocal traced
        traced += 1
        return array + 1

    function(mx.zeros(3))
    with chunked_encoder.RowChunkedLayers().replacing({}):
        function(mx.zeros(3))
    function(mx.zeros(3))
    assert traced == 1


@pytest.mark.usefixtures("compiling")
def test_attention_that_the_library_compiles_is_split(
    tiny_vision_model: TinyVisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Qwen3-VL's attention is compiled: its parts could not be evaluated, and a second image has none."""
    monkeypatch.setattr(chunked_encoder, "_PIECE_WORK", {"cpu": 1e6, "gpu": 1e6})
    folder = tiny_vision_model("qwen3_vl", wide=True)
    model = loaded(folder)[0].model
    tokens, (image,) = prepared(folder, ["Look ", picture(1, 300), " here"])
    ids = mx.array([list(tokens[image.start : image.end])])
    inputs = {name: mx.array(value) for name, value in image.inputs.items()}

    def embed() -> Any:
        return model.get_input_embeddings(ids, mask=mx.ones_like(ids), **inputs)

    parts = list[mx.array]()
    note = chunked_encoder.RowChunkedLayers._note

    def noted(split: chunked_encoder.RowChunkedLayers, output: mx.array, work: float) -> mx.array:
        if output.ndim == 4:  # Only attention outputs have four dimensions.
            parts.append(output)
        return note(split, output, work)

    monkeypatch.setattr(chunked_encoder.RowChunkedLayers, "_note", noted)
    whole = embed().inputs_embeds
    for _ in range(2):
        parts.clear()
        pieces = ChunkedEncoder(model, embed)
        while not pieces.is_done:
            pieces.advance()
        assert len(parts) > 20
        mx.eval(parts)
        assert mx.array_equal(pieces.result().inputs_embeds, whole)


def _tower_files() -> list[Path]:
    import_vision_libraries()
    models = Path(inspect.getfile(importlib.import_module("mlx_vlm.models.base"))).parent
    return sorted([*models.glob("*/vision*.py"), *models.glob("*/*_tower.py"), models / "base.py"])


def test_no_tower_of_the_library_compiles_its_layers() -> None:
    """Compiled layers would be hidden like compiled attention, but cannot be found by name."""
    compiled = [
        (file, node)
        for file in _tower_files()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and any("mx.compile" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]
    assert len(compiled) > 4
    for file, function in compiled:
        assert "self" not in ast.unparse(function.args), (file, function.name)
        called = {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
        assert not {name for name in called if name.startswith("self")}, (file, function.name)


def test_only_attention_of_towers_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(queries: mx.array, scale: float = 2.0) -> mx.array:
        return mx.fast.scaled_dot_product_attention(queries, queries, queries, scale=scale)

    def double(array: mx.array) -> mx.array:
        return array * 2

    tower, language = (
        ModuleType("mlx_vlm.models.example.vision"),
        ModuleType("mlx_vlm.models.example.language"),
    )
    for module in (tower, language):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        vars(module).update(attend=mx.compile(attend), double=mx.compile(double))
    uncompile_attention()
    assert set(attending_functions(language)) == {"attend"}
    assert attending_functions(tower) == {}
    assert type(vars(tower)["attend"]) is FunctionType
    assert type(vars(tower)["double"]) is not FunctionType
    queries = mx.random.normal((1, 2, 8, 16), key=mx.random.key(0))
    assert mx.array_equal(vars(tower)["attend"](queries), attend(queries))

"""Tests of model descriptions from files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.engine.catalog.description import describe
from greenroom.engine.catalog.folders import CatalogEntry


def test_a_model_is_described_by_its_files(tiny_model: Callable[..., Path]) -> None:
    folder = tiny_model("qwen3")
    known = describe(CatalogEntry("a", folder, 7))
    assert (known.id, known.created, known.folder, known.problem) == ("a", 7, str(folder), None)
    assert known.record is not None
    assert (known.record.architecture, known.supports_reasoning) == ("qwen3", True)
    assert known.nbytes == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert known.template


def test_size_and_quantization_are_read_where_they_stand(tmp_path: Path) -> None:
    config = {"model_type": "llama", "quantization": {"bits": 4, "group_size": 64}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    index = {"metadata": {"total_size": 1, "total_parameters": 7_000_000_000}, "weight_map": {}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    known = describe(CatalogEntry("a", tmp_path))
    assert (known.quantization, known.parameters) == ("4-bit", 7_000_000_000)
    assert (known.supports_reasoning, known.template) == (False, "")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "torch_dtype": "bfloat16"}))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": [1]}))
    known = describe(CatalogEntry("a", tmp_path))
    assert (known.quantization, known.parameters) == ("bfloat16", None)


def test_what_is_not_here_or_broken_has_a_name(tmp_path: Path) -> None:
    missing = describe(CatalogEntry("org/a", None, 0, "org", "org/a"))
    assert (missing.id, missing.folder, missing.nbytes, missing.record) == ("org/a", None, 0, None)
    (tmp_path / "config.json").write_text("{")
    broken = describe(CatalogEntry("b", tmp_path))
    assert broken.problem is not None
    assert broken.problem.code == "load_failed"


@pytest.mark.parametrize(
    ("tokens", "fills"),
    [
        (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), True),
        (("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>"), True),
        (("<|fim_prefix|>", "<|fim_suffix|>"), False),
    ],
)
def test_a_vocabulary_tells_whether_gaps_can_be_filled(
    tiny_model: Callable[..., Path], tmp_path: Path, tokens: tuple[str, ...], fills: bool
) -> None:
    from tokenizers import AddedToken, Tokenizer

    folder = tmp_path / "coder"
    shutil.copytree(tiny_model("qwen3"), folder)
    assert not describe(CatalogEntry("a", folder)).fills_gaps
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(token, special=False) for token in tokens])
    tokenizer.save(str(folder / "tokenizer.json"))
    assert describe(CatalogEntry("a", folder)).fills_gaps == fills

"""Tests of model descriptions from files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.engine.catalog.catalog import Catalog
from greenroom.engine.catalog.description import describe, with_findings
from greenroom.engine.catalog.folders import CatalogEntry
from greenroom.engine.catalog.model_files import fingerprint
from greenroom.schemas.models.capabilities import (
    PROBE_VERSION,
    CapabilityRecord,
    ProbedCapabilities,
    VectorTraits,
)


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


ADAPTER = "is not applied: the answers are the base model's"
GAPS = "it was trained to fill gaps in texts"


def notices(folder: Path, *files: str, **config: Any) -> tuple[str, ...]:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    [entry] = Catalog((str(folder),), cache=folder / "none").entries()
    found = describe(entry)
    assert found.problem is None
    return found.notices


@pytest.mark.parametrize(
    "weights", ["adapters.safetensors", "adapter_model.safetensors", "adapter_model.bin"]
)
def test_an_adapter_beside_the_weights_is_told(tmp_path: Path, weights: str) -> None:
    [told] = notices(tmp_path / "m", weights, "adapter_config.json", model_type="llama")
    assert f"({weights})" in told
    assert ADAPTER in told


def test_neither_a_configuration_nor_weights_alone_are_an_adapter(tmp_path: Path) -> None:
    assert notices(tmp_path / "a", "adapter_config.json", model_type="llama") == ()
    assert notices(tmp_path / "b", "adapters.safetensors", model_type="llama") == ()


def test_an_encoder_that_fills_gaps_is_told(tmp_path: Path) -> None:
    masked = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 8}
    [told] = notices(tmp_path / "a", **masked)
    assert told.startswith(GAPS)
    assert notices(tmp_path / "b", "modules.json", **masked) == ()
    assert notices(tmp_path / "c", "1_Pooling/config.json", **masked) == ()
    assert notices(tmp_path / "d", **{**masked, "architectures": ["BertModel"]}) == ()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def test_the_findings_go_before_detection_and_what_is_unknown_stays(folder: Path) -> None:
    detected = CapabilityRecord("text", "qwen", "qwen3", 512, "hermes_json", "think_tag")
    probed = ProbedCapabilities(
        "m", "text", "qwen", tool_parser_id="llama_xml", supports_thinking=False, files=fingerprint(folder)
    )
    found = with_findings(detected, probed, folder)
    assert found == attrs.evolve(detected, tool_parser="llama_xml", probed=probed)
    assert (found.reasoning_parser, found.native_tools) == ("think_tag", None)


def test_measured_vectors_correct_declared_ones(folder: Path) -> None:
    vectors = VectorTraits(384, "mean", normalized=True)
    detected = CapabilityRecord("embeddings", "default", "bert", 512, vectors=vectors)
    probed = ProbedCapabilities(
        "m",
        "embeddings",
        "default",
        embedding_dimensions=64,
        is_normalized=False,
        files=fingerprint(folder),
    )
    assert with_findings(detected, probed, folder).vectors == VectorTraits(64, "mean", normalized=False)


@pytest.mark.parametrize(
    "changed", [{"files": "0"}, {"probe_version": PROBE_VERSION + 1}, {"model_type": "vision"}]
)
def test_findings_about_something_else_are_not_used(folder: Path, changed: dict[str, Any]) -> None:
    detected = CapabilityRecord("text", "qwen", "qwen3", 512)
    probed = ProbedCapabilities("m", "text", "qwen", tool_parser_id="llama_xml", files=fingerprint(folder))
    assert with_findings(detected, probed, folder) != detected
    assert with_findings(detected, attrs.evolve(probed, **changed), folder) is detected
    assert with_findings(detected, None, folder) is detected

"""A probe's findings correct what the files suggest, as long as the files are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.engine.catalog.description import with_findings
from greenroom.engine.catalog.model_files import fingerprint
from greenroom.schemas.models.capabilities import (
    PROBE_VERSION,
    CapabilityRecord,
    ProbedCapabilities,
    VectorTraits,
)


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

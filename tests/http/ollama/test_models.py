"""Model information in Ollama's protocol for model types that Ollama lacks."""

from __future__ import annotations

import pytest

from greenroom.http.ollama.models import running, shown
from greenroom.schemas.models.capabilities import CapabilityRecord, ModelType, VectorTraits
from greenroom.schemas.models.model_description import ModelDescription


@pytest.mark.parametrize(
    ("kind", "vectors", "sizes"),
    [
        ("text", None, {"x.context_length": 512}),
        (
            "embeddings",
            VectorTraits(64, "mean", normalized=True),
            {"x.context_length": 512, "x.embedding_length": 64},
        ),
        ("rerank", None, {"x.context_length": 512}),
        ("speech", None, {}),
        ("transcription", None, {}),
    ],
)
def test_only_a_kind_that_reads_tokens_has_a_context(
    kind: ModelType, vectors: VectorTraits | None, sizes: dict[str, int]
) -> None:
    model = ModelDescription("m", 0, record=CapabilityRecord(kind, "default", "x", 512, vectors=vectors))
    told = {name: size for name, size in shown(model)["model_info"].items() if name.startswith("x.")}
    assert told == sizes
    assert running(model)["context_length"] == sizes.get("x.context_length", 0)


def test_continue_finds_out_that_a_model_fills_gaps() -> None:
    plain = ModelDescription("m", 0, template="{{ messages }}")
    filling = ModelDescription("m", 0, template="{{ messages }}", fills_gaps=True)
    assert [".Suffix" in shown(model)["template"] for model in (plain, filling)] == [False, True]

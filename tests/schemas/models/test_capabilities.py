"""Capabilities that model lists show for each model type."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.schemas.models.capabilities import (
    CapabilityRecord,
    ModelType,
    ProbedCapabilities,
    VectorTraits,
    capability_summary,
)


@pytest.mark.parametrize(
    ("kind", "traits", "summary"),
    [
        ("text", {}, {"inputs": ["text"], "outputs": ["text"], "context_length": 512, "probed": False}),
        (
            "vision",
            {"inputs": ("text", "image", "audio", "video"), "multi_image": True},
            {
                "inputs": ["text", "image", "audio"],
                "outputs": ["text"],
                "context_length": 512,
                "probed": False,
                "multi_image": True,
                "video": False,
            },
        ),
        (
            "embeddings",
            {"vectors": VectorTraits(384, "mean", normalized=True)},
            {
                "inputs": ["text"],
                "outputs": ["embedding"],
                "context_length": 512,
                "probed": False,
                "dimensions": 384,
                "pooling": "mean",
                "normalized": True,
            },
        ),
        ("rerank", {}, {"inputs": ["text"], "outputs": ["score"], "context_length": 512, "probed": False}),
        (
            "speech",
            {"voices": ("a", "b")},
            {
                "inputs": ["text"],
                "outputs": ["audio"],
                "probed": False,
                "text_to_speech": True,
                "voices": ["a", "b"],
            },
        ),
        (
            "transcription",
            {"inputs": ("audio",)},
            {"inputs": ["audio"], "outputs": ["text"], "probed": False, "speech_to_text": True},
        ),
    ],
)
def test_each_kind_says_what_it_has(kind: ModelType, traits: dict[str, Any], summary: dict[str, Any]) -> None:
    record = CapabilityRecord(kind, "default", "x", 512, **traits)
    assert capability_summary(record) == {"type": kind, **summary}


def test_a_probed_model_says_so() -> None:
    record = CapabilityRecord(
        "rerank", "default", "x", 512, probed=ProbedCapabilities("x", "rerank", "default")
    )
    assert capability_summary(record)["probed"] is True

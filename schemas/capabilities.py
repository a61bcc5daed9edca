"""What is known about a model before it is loaded: probed once, else detected from its files."""

from __future__ import annotations

from typing import Literal

import attrs

ModelType = Literal["text", "vision", "embeddings", "rerank", "speech", "transcription"]
"""What kind of model it is: what it is asked, and what it answers."""

Family = Literal[
    "qwen",
    "glm4",
    "llama",
    "deepseek",
    "mimo",
    "nemotron_nas",
    "gemma",
    "mistral",
    "liquid",
    "granite",
    "gpt_oss",
    "phi",
    "nemotron",
    "apertus",
    "jamba",
    "hunyuan",
    "default",
]
"""Which adapter speaks for the model."""


@attrs.frozen
class CapabilityRecord:
    """Everything needed to make a model's adapter without looking at its output (document 000, section 11).

    Args:
        architecture: `model_type` of config.json.
        context: Longest prompt plus answer, in tokens.
        tool_parser: Parser id, or None to let the template and the family decide.
        thinking_parser: Likewise.
        native_tools: The chat template takes `tools`; None if that has not been seen yet.
    """

    model_type: ModelType
    family: Family
    architecture: str
    context: int
    tool_parser: str | None = None
    thinking_parser: str | None = None
    native_tools: bool | None = None

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


Modality = Literal["text", "image", "audio", "video"]
"""What a model is given."""


@attrs.frozen
class VectorTraits:
    """What the vectors of a model are like.

    Args:
        dimensions: Numbers in each.
        pooling: How they are made of those of tokens; several ways, joined by `+`, stand side by side.
        normalized: Their length is 1.
    """

    dimensions: int
    pooling: str
    normalized: bool


@attrs.frozen
class CapabilityRecord:
    """Everything needed to make a model's adapter without looking at its output (document 000, section 11).

    Args:
        architecture: `model_type` of config.json.
        context: Longest prompt plus answer, in tokens.
        tool_parser: Parser id, or None to let the template and the family decide.
        thinking_parser: Likewise.
        native_tools: The chat template takes `tools`; None if that has not been seen yet.
        inputs: What it was made to be given; Greenroom does not serve video.
        multi_image: A prompt may hold more than one image.
        vectors: Of a model that embeds.
        voices: Names of those that a model which speaks brings along.
    """

    model_type: ModelType
    family: Family
    architecture: str
    context: int
    tool_parser: str | None = None
    thinking_parser: str | None = None
    native_tools: bool | None = None
    inputs: tuple[Modality, ...] = attrs.field(default=("text",), kw_only=True)
    multi_image: bool = attrs.field(default=False, kw_only=True)
    vectors: VectorTraits | None = attrs.field(default=None, kw_only=True)
    voices: tuple[str, ...] = attrs.field(default=(), kw_only=True)

    @property
    def speaks(self) -> bool:
        """Whether it turns text into speech."""
        return self.model_type == "speech"

    @property
    def transcribes(self) -> bool:
        """Whether it turns speech into text."""
        return self.model_type == "transcription"

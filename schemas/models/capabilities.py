"""Model capabilities known before loading: probed once, or detected from the model's files."""

from __future__ import annotations

from typing import Literal

import attrs

ModelType = Literal["text", "vision", "embeddings", "rerank", "speech", "transcription"]
"""The type of a model, which decides its input and its output."""

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
"""The model family, which selects the adapter."""


Modality = Literal["text", "image", "audio", "video"]
"""A type of model input."""


@attrs.frozen
class VectorTraits:
    """Properties of a model's embedding vectors.

    Args:
        dimensions: Length of a vector.
        pooling: Pooling of token vectors (`mean`, `cls`, …); several, joined by `+`, are concatenated.
        normalized: True if vectors have unit length.
    """

    dimensions: int
    pooling: str
    normalized: bool


@attrs.frozen
class CapabilityRecord:
    """The data that builds a model's adapter without generating anything (document 000, section 11).

    Args:
        architecture: `model_type` of config.json.
        context: Maximum length of prompt plus answer, in tokens.
        tool_parser: Parser id, or None to let the template and the family decide.
        reasoning_parser: Parser id for reasoning, or None, likewise.
        native_tools: True if the chat template accepts `tools`; None if that has not been probed yet.
        inputs: Modalities that the model supports; Greenroom does not serve video.
        multi_image: True if a prompt may contain more than one image.
        vectors: Properties of the vectors of an embedding model.
        voices: Names of a speech model's built-in voices.
    """

    model_type: ModelType
    family: Family
    architecture: str
    context: int
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    native_tools: bool | None = None
    inputs: tuple[Modality, ...] = attrs.field(default=("text",), kw_only=True)
    multi_image: bool = attrs.field(default=False, kw_only=True)
    vectors: VectorTraits | None = attrs.field(default=None, kw_only=True)
    voices: tuple[str, ...] = attrs.field(default=(), kw_only=True)

    @property
    def speaks(self) -> bool:
        """True if the model converts text to speech."""
        return self.model_type == "speech"

    @property
    def transcribes(self) -> bool:
        """True if the model transcribes speech."""
        return self.model_type == "transcription"

"""Model capabilities known before loading: probed once, or detected from the model's files."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Literal

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
        pooling: Pooling of token vectors (`mean`, `cls`, …); several, joined by `+`, are concatenated.
        normalized: True if vectors have unit length.
    """

    dimensions: int
    pooling: str
    normalized: bool


PROBE_VERSION = 3
"""Version of the probe and its record; records of other versions are not used."""

ToolFormat = Literal["native", "injection"]
"""The describer of tools in prompts: the model's own template, or the server."""


@attrs.frozen
class ProbedCapabilities:
    """A model's capabilities that a probe has observed.

    A field is None if it does not apply to the model's type, or if the probe did not observe it; then
    detection decides. The database has a column for each field.

    Args:
        tool_parser_id: Id of the parser that found the requested calls; None if none did.
        thinking_parser_id: Id of the parser that found reasoning; None if none did.
        supports_native_tools: True if the chat template describes tools.
        supports_thinking: True if the model reasoned.
        supports_toggle: True if the reasoning switch works; None if there is none.
        tool_format: Describer of tools in prompts; None if no parser found the requested calls.
        practical_max_tokens: Longest context for which the memory suffices, in tokens.
        supports_multi_image: True if the model takes several images in one prompt.
        supports_video: False for vision models, since no video is served.
        max_sequence_length: Longest text in tokens, of models that embed or rank.
        is_normalized: True if vectors have length 1.
        supports_tts: True if the model speaks.
        supports_stt: True if the model transcribes.
        probed_at: Unix time of the probe in seconds.
        files: Fingerprint of the model's files; the record is invalid once they change.
    """

    model_id: str
    model_type: ModelType
    model_family: Family
    tool_parser_id: str | None = None
    thinking_parser_id: str | None = None
    supports_native_tools: bool | None = None
    supports_thinking: bool | None = None
    supports_toggle: bool | None = None
    tool_format: ToolFormat | None = None
    practical_max_tokens: int | None = None
    supports_multi_image: bool | None = None
    supports_video: bool | None = None
    embedding_dimensions: int | None = None
    max_sequence_length: int | None = None
    is_normalized: bool | None = None
    supports_tts: bool | None = None
    supports_stt: bool | None = None
    probed_at: float = 0.0
    probe_version: int = PROBE_VERSION
    files: str = attrs.field(default="", repr=False)


@attrs.frozen
class CapabilityRecord:
    """The data that builds a model's adapter without generating anything.

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
        probed: Findings of a probe, which this record follows; None if it was only detected.
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
    probed: ProbedCapabilities | None = attrs.field(default=None, kw_only=True)

    @property
    def speaks(self) -> bool:
        return self.model_type == "speech"

    @property
    def transcribes(self) -> bool:
        return self.model_type == "transcription"


_OUTPUTS: Mapping[ModelType, str] = {
    "text": "text",
    "vision": "text",
    "embeddings": "embedding",
    "rerank": "score",
    "speech": "audio",
    "transcription": "text",
}


def capability_summary(record: CapabilityRecord) -> dict[str, Any]:
    """Return a JSON summary of a capability record, with the fields that apply to its model type.

    `inputs` lists what clients can send. `video` is false, since none is served, whatever the model can see.
    """
    summary: dict[str, Any] = {
        "type": record.model_type,
        "inputs": [sense for sense in record.inputs if sense != "video"],
        "outputs": [_OUTPUTS[record.model_type]],
        "context_length": record.context or None,
        "probed": record.probed is not None,
    }
    match record.model_type:
        case "vision":
            summary |= {"multi_image": record.multi_image, "video": False}
        case "embeddings" if (vectors := record.vectors) is not None:
            summary["dimensions"] = vectors.dimensions
            summary |= {"pooling": vectors.pooling, "normalized": vectors.normalized}
        case "speech":
            summary |= {"text_to_speech": record.speaks, "voices": list(record.voices)}
            del summary["context_length"]
        case "transcription":
            summary["speech_to_text"] = record.transcribes
            del summary["context_length"]
    return summary


def findings_of(record: ProbedCapabilities) -> dict[str, Any]:
    """Return a record's fields; its time in ISO 8601, and without the fingerprint of the files."""
    fields = attrs.asdict(record, filter=lambda field, _: field.name != "files")
    probed_at = datetime.datetime.fromtimestamp(record.probed_at, datetime.UTC)
    return {**fields, "probed_at": probed_at.isoformat(timespec="seconds")}


@attrs.frozen
class WorkingSpace:
    """The working space measured at a model's last load.

    Args:
        nbytes: Bytes that steps took beyond weights and caches.
        stamp: Text that changes with the model's files and the settings on which the bytes depend.
    """

    model_id: str
    nbytes: int
    stamp: str

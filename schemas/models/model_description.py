"""Descriptions of models that need no loading."""

from __future__ import annotations

import attrs

from greenroom.schemas.messages.messages import JsonObject
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import Problem


@attrs.frozen
class ModelDescription:
    """The description of an available model. Fields that its files do not reveal are empty.

    Args:
        created: Unix time in seconds.
        nbytes: Size of its files in bytes.
        record: Capabilities; None if its files are missing or unusable.
        problem: The reason why the files are unusable.
        parameters: Number of weights.
        quantization: Bits per weight (`4-bit`), or the weights' type.
        template: Source of the chat template.
        supports_reasoning: True if the template supports reasoning.
        fills_gaps: True if the vocabulary has fill-in-the-middle tokens.
        generation: Contents of its `generation_config.json`.
        folder: Path of the folder with its files.
        notices: Warnings for the operator, as sentences.
    """

    id: str
    created: int
    nbytes: int = 0
    record: CapabilityRecord | None = None
    problem: Problem | None = None
    parameters: int | None = None
    quantization: str = ""
    template: str = ""
    supports_reasoning: bool = False
    fills_gaps: bool = False
    generation: JsonObject = attrs.field(factory=dict)
    folder: str | None = None
    notices: tuple[str, ...] = ()

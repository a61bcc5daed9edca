"""What can be told of a model without loading it."""

from __future__ import annotations

import attrs

from greenroom.schemas.capabilities import CapabilityRecord
from greenroom.schemas.messages import JsonObject
from greenroom.schemas.problems import Problem


@attrs.frozen
class ModelDescription:
    """A model that can be asked for. What its files do not tell is empty.

    Args:
        created: Unix time in seconds.
        nbytes: Of its files.
        record: What it can do; None if its files are not here or cannot be used.
        problem: Why they cannot be used.
        parameters: Number of its weights.
        quantization: Bits of its weights (`4-bit`), or their type.
        template: Source of its chat template.
        thinks: The template knows thoughts.
        fills_gaps: Its vocabulary has tokens for text between two texts.
        generation: Its `generation_config.json`.
        folder: Where its files are.
    """

    id: str
    created: int
    nbytes: int = 0
    record: CapabilityRecord | None = None
    problem: Problem | None = None
    parameters: int | None = None
    quantization: str = ""
    template: str = ""
    thinks: bool = False
    fills_gaps: bool = False
    generation: JsonObject = attrs.field(factory=dict)
    folder: str | None = None

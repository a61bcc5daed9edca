"""Operator settings for the parsers of a model's output."""

from __future__ import annotations

import attrs

from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.settings.settings import Settings


def with_operators_parsers(record: CapabilityRecord, settings: Settings, model: str) -> CapabilityRecord:
    """Return a model's record with the parsers that the operator configured for it, if any.

    Args:
        model: Name of the model.
    """
    own = settings.of_model(model)
    return attrs.evolve(
        record,
        tool_parser=own.tool_parser or record.tool_parser,
        reasoning_parser=own.thinking_parser or record.reasoning_parser,
    )

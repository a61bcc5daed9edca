"""Model descriptions in OpenAI's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from greenroom.schemas.models.capability_summary import capability_summary
from greenroom.schemas.openai.models import Model, Models
from greenroom.schemas.protocols.pool_protocol import ModelCard


class OpenAIModelFormatter:
    """Formats a list of models or a single one."""

    def listed(self, cards: Sequence[ModelCard], query: Mapping[str, str]) -> dict[str, Any]:
        """Return all models: OpenAI's list has no pages."""
        return attrs.asdict(Models(tuple(map(_model, cards))))

    def one(self, card: ModelCard) -> dict[str, Any]:
        """Return a model's JSON object."""
        return attrs.asdict(_model(card))


def _model(card: ModelCard) -> Model:
    known = None if card.record is None else capability_summary(card.record)
    return Model(card.id, card.created, card.owned_by, known)

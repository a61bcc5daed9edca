"""Facts about a model, as lists of models tell them."""

from __future__ import annotations

import math
from typing import Any

from greenroom.schemas.models.capability_summary import capability_summary
from greenroom.schemas.models.lifecycle import DOCUMENTED_NAMES, ModelState
from greenroom.schemas.models.model_description import ModelDescription


def model_listing(known: ModelDescription, state: ModelState | None = None) -> dict[str, Any]:
    """Return a JSON object with the facts about a model; a fact that is not known is null.

    Args:
        state: State in the server that lists it; None without a server.
    """
    record = known.record
    summary = None if record is None else capability_summary(record)
    return {
        "type": None if record is None else record.model_type,
        "family": None if record is None else record.family,
        "architecture": None if record is None else record.architecture,
        "base_model": known.model if known.model != known.id else None,
        "size_bytes": known.nbytes,
        "parameters": known.parameters,
        "quantization": known.quantization or None,
        "context_length": None if summary is None else summary.get("context_length"),
        "capabilities": summary,
        "tools": known.takes_tools,
        "thinking": known.thinks,
        "thinking_switch": known.switches_thinking,
        "probed": record is not None and record.probed is not None,
        "state": None if state is None else state.value,
        "status": None if state is None else DOCUMENTED_NAMES[state],
        "required_bytes": None if known.need is None else known.need.total,
        "least_bytes": None if known.need is None else known.need.least,
        "fits": known.fits,
        "tool_parser": known.parsers[0],
        "thinking_parser": known.parsers[1],
        "generation": known.generation_defaults,
        "settings": {
            each.name: {"value": _plain(each.value), "origin": each.origin} for each in known.settings
        },
        "problem": None if known.problem is None else known.problem.detail,
    }


def _plain(value: Any) -> Any:
    """Return a value that JSON can express, which has no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value

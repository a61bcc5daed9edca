"""Whether an operator lets a model see, and whether this machine is large enough for that."""

from __future__ import annotations

from pathlib import Path

from greenroom.engine.catalog.operator.name_patterns import first_match
from greenroom.schemas.capabilities import CapabilityRecord
from greenroom.schemas.problems import Problem, ProblemError, load_failed
from greenroom.schemas.settings import Settings

LARGEST_SHARE = 0.7
"""Of physical memory, that the weights of a model that sees may take.

Source: document 002, "Memory-Aware Loading".
"""


def may_see(model: str, settings: Settings) -> bool:
    """Return whether a model of that name sees, if it can."""
    return first_match(model, settings.vision) != "off"


def check_vision(
    record: CapabilityRecord, folder: Path, model: str, settings: Settings, physical: int
) -> None:
    """Refuse a model that must not see and has no other way to be loaded, or that sees and is too large.

    Args:
        physical: Bytes of memory that this machine has.

    Raises:
        ProblemError: 503 `load_failed`; 507 with the bytes that are needed and those that there are.
    """
    if record.model_type != "vision":
        return
    if not may_see(model, settings):
        detail = (
            f"vision is off for it, and mlx-lm cannot load the text half of '{record.architecture}' alone "
            "(setting vision)."
        )
        raise ProblemError(load_failed(model, detail))
    needed = sum(path.stat().st_size for path in folder.glob("model*.safetensors"))
    available = int(physical * LARGEST_SHARE)
    if needed > available:
        detail = (
            f"The model '{model}' sees, and needs {needed >> 20:,} MB for its weights; such models may take "
            f"{available >> 20:,} MB here, {LARGEST_SHARE:.0%} of the memory, since images need much beside "
            "them. With vision off its text half alone is loaded (setting vision)."
        )
        raise ProblemError(Problem(507, "insufficient_memory", detail))

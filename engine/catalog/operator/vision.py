"""Vision checks: the operator's setting, and the memory of this machine."""

from __future__ import annotations

from pathlib import Path

from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import Problem, ProblemError, load_failed, memory_members
from greenroom.schemas.settings.settings import Settings

LARGEST_SHARE = 0.7
"""Largest share of physical memory for the weights of a vision model.

Source: document 002 of the specification, "Memory-Aware Loading".
"""


def allows_vision(model: str, settings: Settings) -> bool:
    return settings.of_model(model).vision is not False


def check_vision(
    record: CapabilityRecord, folder: Path, model: str, settings: Settings, physical: int
) -> None:
    """Refuse a vision model that is too large, or one that cannot be loaded with its vision turned off.

    Args:
        physical: Physical memory of this machine in bytes.

    Raises:
        ProblemError: 503 `load_failed`; or 507 with the bytes needed and available.
    """
    if record.model_type != "vision":
        return
    if not allows_vision(model, settings):
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
        members = memory_members(needed, available)
        raise ProblemError(Problem(507, "insufficient_memory", detail, members=members))

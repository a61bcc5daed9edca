"""Opening a model that sees: the engine of text models, over mlx-vlm's weights, with features of images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from greenroom.engine.memory.account import MemoryAccount
from greenroom.engine.open_text_engine import open_text_engine
from greenroom.engine.text_engine import TextEngine
from greenroom.engine.vision.image_encoder import ImageEncoder
from greenroom.engine.vision.load_vision_model import load_vision_lazily
from greenroom.schemas.capabilities import CapabilityRecord
from greenroom.schemas.settings import Settings


def open_vision_engine(
    folder: Path,
    record: CapabilityRecord,
    settings: Settings,
    progress: Callable[[float], None],
    is_abandoned: Callable[[], bool],
    account: MemoryAccount | None = None,
) -> TextEngine:
    """Load a model's weights and everything that generates with them, all confined to this thread.

    Args:
        progress: Called with the fraction of the weights that are in memory, 0 to 1.
        is_abandoned: Called between chunks of the weights; returns whether to stop.
        account: Of memory, shared by all models of the process; None is one of its own.

    Raises:
        ProblemError: 503 `load_failed`; 507: there is not enough memory for the weights.
        LoadAbandonedError: `is_abandoned` returned True.
    """
    return open_text_engine(
        folder, record, settings, progress, is_abandoned, account, load_vision_lazily, ImageEncoder
    )

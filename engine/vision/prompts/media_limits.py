"""Image and audio limits of a model, as far as the attributes of its processor state them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from greenroom.engine.media.images.limits import ResolutionLimit

_LARGEST_AREA = 16 * 1024 * 1024
"""Area in pixels assumed for a processor that states no limit."""
_LONGEST_SIDE = 16_384
"""Largest side in pixels; a higher `longest_edge` is an area: Qwen's processors use one name for both."""

_LEAST_SIDE = 14
"""Smallest side in pixels, that of a patch; a lower one stands for no limit (GLM-5-Next's is 1)."""

_LONGEST_SOUND = 300.0
"""Longest sound in seconds, assumed for a processor that states no limit."""


@attrs.frozen
class AudioLimits:
    """Audio limits of a model.

    Args:
        rate: Sample rate in Hz.
        seconds: Longest sound in seconds.
    """

    rate: int
    seconds: float


def audio_limits(processor: Any) -> AudioLimits | None:
    """Return a processor's audio limits; None if it takes no audio."""
    extractor = getattr(processor, "feature_extractor", None)
    if extractor is None:
        return None
    tokens, span = (getattr(processor, name, 0) for name in ("audio_seq_length", "audio_ms_per_token"))
    return AudioLimits(getattr(extractor, "sampling_rate", 16_000), tokens * span / 1000 or _LONGEST_SOUND)


def resolution_limit(processor: Any) -> ResolutionLimit:
    """Return the size above which an image processor downscales, as far as its attributes state it."""
    area = getattr(processor, "max_pixels", None)
    if isinstance(area, int) and area > 0:
        return ResolutionLimit(area=area)
    size = getattr(processor, "size", None)
    size = size if isinstance(size, Mapping) else {}
    stated = {side: value for side, value in size.items() if isinstance(value, int) and value >= _LEAST_SIDE}
    longest, height, width = (stated.get(side) for side in ("longest_edge", "height", "width"))
    if longest is not None:
        return ResolutionLimit(area=longest) if longest > _LONGEST_SIDE else ResolutionLimit(longest, longest)
    if height and width and not _looks_closer(processor):
        return ResolutionLimit(width, height)
    return ResolutionLimit(area=_LARGEST_AREA)


def _looks_closer(processor: Any) -> bool:
    """Return whether the processor may cut an image into tiles of its input size."""
    words = ("tile", "crop", "patches", "pinpoints", "pan_and_scan", "splitting")
    return any(value and any(word in name for word in words) for name, value in vars(processor).items())

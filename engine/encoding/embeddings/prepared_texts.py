"""Texts prepared for embedding."""

from __future__ import annotations

import attrs

from greenroom.engine.encoding.rows import PreparedRows


@attrs.frozen(eq=False)
class PreparedTexts(PreparedRows):
    """One row per text.

    Args:
        dimensions: Width of the returned vectors; None for all.
    """

    dimensions: int | None = None

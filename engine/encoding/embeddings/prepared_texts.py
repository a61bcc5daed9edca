"""Texts that are ready to be embedded."""

from __future__ import annotations

import attrs

from greenroom.engine.encoding.rows import PreparedRows


@attrs.frozen(eq=False)
class PreparedTexts(PreparedRows):
    """A row for each text.

    Args:
        dimensions: Numbers of each vector; None for all.
    """

    dimensions: int | None = None

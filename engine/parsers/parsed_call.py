"""What a block of calls is read as: calls, or an error that says why it holds none."""

from __future__ import annotations

import attrs


@attrs.frozen
class ParsedCall:
    """A call as it was written: `arguments` is the JSON text of one object."""

    name: str
    arguments: str


class Malformed(Exception):
    """A block is no call, whatever may follow."""


class Unclosed(Malformed):
    """What looked like the end of a block stands inside a value.

    Args:
        hides_markers: No marker means anything in that value, so that none in it opens another block.
    """

    def __init__(self, reason: str, hides_markers: bool = False) -> None:
        super().__init__(reason)
        self.hides_markers = hides_markers

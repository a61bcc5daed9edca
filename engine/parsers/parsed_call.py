"""Results of parsing a block: tool calls, or an error with the reason why it holds none."""

from __future__ import annotations

import attrs


@attrs.frozen
class ParsedCall:
    """A tool call as the model wrote it; `arguments` is the JSON text of one object."""

    name: str
    arguments: str


class Malformed(Exception):
    """The block is no tool call, whatever text follows."""


class Unclosed(Malformed):
    """The apparent end of the block is inside a value.

    Args:
        hides_markers: True if markers inside that value have no meaning and cannot open another block.
    """

    def __init__(self, reason: str, hides_markers: bool = False) -> None:
        super().__init__(reason)
        self.hides_markers = hides_markers

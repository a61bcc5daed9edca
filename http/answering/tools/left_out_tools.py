"""Tools that only the makers of a protocol can run, such as web search.

Agents offer them with every request beside their own tools, so they are left out there. A request that offers
nothing else would get an answer that looks as if the tool had been used, so it is refused.
"""

from __future__ import annotations

from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import ProblemError, invalid

log = get_logger(actor="http")
_LONGEST_KIND, _MOST_KINDS = 40, 50
"""Limits on what is logged, since clients choose the text."""


class _LeftOut:
    """Logs the kinds of tools that are left out, each once."""

    def __init__(self) -> None:
        self._noted: set[str] = set()

    def note(self, kind: str) -> None:
        """Log a kind, unless it or very many others were logged before."""
        kind = kind[:_LONGEST_KIND]
        if kind not in self._noted and len(self._noted) < _MOST_KINDS:
            self._noted.add(kind)
            log.info("tool left out", tool=kind)


LEFT_OUT = _LeftOut()


def none_left(kind: str, field: str = "tools[0]") -> ProblemError:
    """Return the 400 for a request whose tools are all left out.

    Args:
        kind: Type of the first of them.
        field: Path of that tool.
    """
    detail = (
        f"`{field}.type` is {kind[:_LONGEST_KIND]!r}, which this server neither runs nor describes to the "
        "model, and no other tool is offered. Offer functions that your program runs, or leave `tools` out."
    )
    return invalid(detail, f"{field}.type", "unsupported_parameter")

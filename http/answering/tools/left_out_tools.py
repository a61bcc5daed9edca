"""Tools that only the makers of a protocol can run, such as web search.

Agents offer them with every request beside their own tools, so they are left out there. A request that offers
nothing else would get an answer that looks as if the tool had been used, so it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import ProblemError, invalid

log = get_logger(actor="http")
_LONGEST_KIND, _MOST_KINDS = 40, 50
"""Limits on what is logged, since clients choose the text."""


def log_left_out(kinds: Iterable[str]) -> None:
    """Log the kinds of a request's tools that are left out, in one line of the debug log.

    Agents offer the same tools with every request, so a line of a higher level would fill the log.
    """
    names = list(dict.fromkeys(kind[:_LONGEST_KIND] for kind in kinds))
    if names:
        log.debug("tools left out", tools=names[:_MOST_KINDS])


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

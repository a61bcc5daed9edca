"""Processor time of a server per streamed token with something beside it, over that without, in pairs.

Both sides stream the same number of chats in turns from one server in a process of its own, the order
reversed in every second pair. The model must write as many tokens as it may, as a tiny one of random weights
does; a run should last some seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import attrs

from greenroom.notes.protocol_costs import CHAT, Cost, Load, typical

Beside = Callable[[], AbstractAsyncContextManager[None]]
LIMIT = 1.03
"""Ratio that is allowed."""


@attrs.frozen
class Pairs:
    """Costs of both sides, pair by pair."""

    beside: list[Cost]
    alone: list[Cost]

    @property
    def ratios(self) -> list[float]:
        """Ratios of the pairs."""
        return [with_it.cpu / without.cpu for with_it, without in zip(self.beside, self.alone, strict=True)]

    def line(self) -> str:
        """Return the median and the spread, and both sides."""
        found = self.ratios
        spread = f"{statistics.median(found):.3f} ({min(found):.3f}-{max(found):.3f}), {len(found)} pairs"
        return f"{spread}; {typical(self.beside)}; without {typical(self.alone)}"


async def measure_pairs(load: Load, beside: Beside, pairs: int) -> Pairs:
    """Measure that many pairs, after one that warms up."""
    found = Pairs([], [])
    for pair in range(-1, pairs):
        costs: dict[bool, Cost] = {}
        for order in range(2):
            with_it = (pair + order) % 2 == 0
            salt = 2 * pair + order
            if with_it:
                async with beside():
                    costs[with_it] = await load.cost(*CHAT, salt=salt)
            else:
                costs[with_it] = await load.cost(*CHAT, salt=salt)
        if pair >= 0:
            found.beside.append(costs[True])
            found.alone.append(costs[False])
            print(f"{found.ratios[-1]:.3f}", end=" ", flush=True)
    print()
    return found

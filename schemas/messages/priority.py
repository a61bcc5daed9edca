"""The priorities of requests: each step lets a request wait behind those that arrive a while later.

The numbers are vLLM's: a lower one is served earlier, and 0 is the default. No client may ask for less, but
the operator may give a key less: its requests go before others that arrived a while earlier.
"""

from __future__ import annotations

FLEX = 1
"""Priority of OpenAI's `service_tier: "flex"`."""

BACKGROUND = 1
"""Lowest number for a response that nobody waits for."""

PROBE = 10
"""Priority of the server's own questions to a model; higher numbers wait no longer than this one.

A key's requests go at most as many steps before others, so that nobody starves.
"""

MAX_PRIORITY = 2**31 - 1
"""Largest number that is accepted, a 32-bit integer as in vLLM's clients."""

AGEING = 60.0
"""Seconds of waiting that make up for one step of priority."""


def turn_of(arrival: float, priority: int) -> float:
    """Return the time by which a request is ordered among others: its arrival, put off by its priority.

    It never changes, so a request that waits is passed by newer ones for a limited time only.

    Args:
        arrival: Time of its arrival in seconds, by any clock.
    """
    return arrival + AGEING * max(-PROBE, min(priority, PROBE))

"""Counts of the requests and tokens of clients, as the models report them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ClientLimits(Protocol):
    """Limits of clients, as a meter's follower; a client with a checked key has its id as its name."""

    def begin(self, client: str, request_id: str) -> Callable[[], None]:
        """Count a request as one that waits or runs; return the function to call at its end."""

    def charge(self, client: str, tokens: int) -> None:
        """Charge the tokens of a prompt, and the most that its answers may have.

        Raises:
            ProblemError: 429: the client has used up its tokens.
        """

    def settle(self, client: str, charged: int, used: int) -> None:
        """Return the tokens of a charge that were not used."""


class TokenMeter:
    """Reports the requests of models to its followers, on the event loop."""

    def __init__(self) -> None:
        self._followers: list[ClientLimits] = []

    def follow(self, limits: ClientLimits) -> None:
        """Tell limits, none of whose methods may block, of each request from now on."""
        self._followers.append(limits)

    def begin(self, client: str, request_id: str) -> list[Callable[[], None]]:
        """Record the arrival of a request; return the functions to call at its end."""
        return [limits.begin(client, request_id) for limits in self._followers]

    def charge(self, client: str, tokens: int) -> None:
        """Charge the most tokens that a request may cost, as `ClientLimits.charge` does."""
        for limits in self._followers:
            limits.charge(client, tokens)

    def settle(self, client: str, charged: int, used: int) -> None:
        """Record the tokens that a charged request has used."""
        for limits in self._followers:
            limits.settle(client, charged, used)

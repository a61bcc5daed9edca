"""Counts of the tokens that clients use, reported by the models: cancelled requests cost tokens, too."""

from __future__ import annotations

from collections.abc import Callable


class TokenMeter:
    """Reports the tokens of each ended request to its followers, on the event loop."""

    def __init__(self) -> None:
        self._followers: list[Callable[[str, int], None]] = []

    def follow(self, spend: Callable[[str, int], None]) -> None:
        """Call a function, which must not block, with the client and the tokens of each ended request."""
        self._followers.append(spend)

    def spend(self, client: str, tokens: int) -> None:
        """Record the end of a client's request.

        Args:
            client: Name of the client, which for a checked key is the key's id.
            tokens: Tokens of its prompt and its answers.
        """
        for follower in self._followers:
            follower(client, tokens)

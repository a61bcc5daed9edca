"""Which prompt is next: clients get equal shares of the time, and their conversations one prompt each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs

from greenroom.engine.fairness.client_shares import ClientShares


@attrs.frozen
class WaitingPrompt:
    """A prompt that waits to be computed.

    Args:
        client: Who asks: an address, and behind a `#` a key, if it has one.
        conversation: Which of the client's conversations it belongs to.
        remaining: Tokens that it still needs.
    """

    client: str
    conversation: str
    remaining: int


class FairQueue:
    """Prompts of clients that have equal shares.

    A prompt is worth nothing until all of it is computed. So of one client, every second chunk goes to the
    shortest prompt and the others to the oldest: neither a short prompt behind long ones nor a long one
    behind a stream of short ones waits for ever. What is heard or read while it is made has `FairTurns`.
    """

    def __init__(self) -> None:
        self._clients = ClientShares()
        self._chosen = 0

    @property
    def known_names(self) -> int:
        """How many addresses and keys are remembered, because they wait or had more than their share."""
        return self._clients.known_names

    def forget(self) -> None:
        """Have all clients begin anew; to be called when one comes while nobody waits.

        The virtual time goes on only while somebody is served: whoever had a large prompt last would stay
        behind others over any idle time, until they had as much.
        """
        self._clients = ClientShares()

    def in_order(self, clients: Iterable[str]) -> Iterator[str]:
        """Yield clients, first the one whose turn it is.

        Args:
            clients: All that wait, at least one.
        """
        return self._clients.in_order(clients)

    def choose(self, waiting: Sequence[WaitingPrompt]) -> int:
        """Return the index of the prompt that is next; of one conversation, only the oldest counts.

        Args:
            waiting: The oldest first, at least one.
        """
        client = next(self.in_order(prompt.client for prompt in waiting))
        heads: dict[str, int] = {}
        for index, prompt in enumerate(waiting):
            if prompt.client == client:
                heads.setdefault(prompt.conversation, index)
        indices = list(heads.values())
        return min(indices, key=lambda index: waiting[index].remaining) if self._chosen % 2 else indices[0]

    def charge(self, clients: Sequence[str], cost: float) -> None:
        """Charge the clients of a chunk.

        Args:
            clients: Of each prompt in it; they share the cost, and the first was chosen.
            cost: In any unit.
        """
        self._chosen += 1
        self._clients.charge(clients, cost)

"""Fair prefill queue: clients share time equally, and each conversation has one prompt at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs

from greenroom.engine.fairness.client_shares import ClientShares


@attrs.frozen
class WaitingPrompt:
    """A prompt that waits for prefill.

    Args:
        client: Address of the client, with `#` and its key behind it if it has one.
        conversation: Key of the client's conversation.
        remaining: Number of tokens left to prefill.
    """

    client: str
    conversation: str
    remaining: int


class FairQueue:
    """Queue of prompts with equal shares among clients.

    A prompt yields nothing until all of it is prefilled. So for each client, chunks alternate between its
    shortest prompt and its oldest: neither a short prompt behind long ones nor a long one behind a stream of
    short ones starves. Streamed results use `FairTurns` instead.
    """

    def __init__(self) -> None:
        self._clients = ClientShares()
        self._chosen = 0

    @property
    def known_names(self) -> int:
        """Number of addresses and clients with state, because they wait or exceeded their share."""
        return self._clients.known_names

    def forget(self) -> None:
        """Reset all clients; to be called when a prompt arrives at an empty queue.

        Virtual time advances only while a client is served: the client of the last large prompt would
        otherwise stay behind others after any idle time, until they had as much.
        """
        self._clients = ClientShares()

    def in_order(self, clients: Iterable[str]) -> Iterator[str]:
        """Yield clients in serving order.

        Args:
            clients: Waiting clients, at least one.
        """
        return self._clients.in_order(clients)

    def choose(self, waiting: Sequence[WaitingPrompt]) -> int:
        """Return the index of the next prompt; only the oldest of each conversation counts.

        Args:
            waiting: Waiting prompts, oldest first, at least one.
        """
        client = next(self.in_order(prompt.client for prompt in waiting))
        heads: dict[str, int] = {}
        for index, prompt in enumerate(waiting):
            if prompt.client == client:
                heads.setdefault(prompt.conversation, index)
        indices = list(heads.values())
        return min(indices, key=lambda index: waiting[index].remaining) if self._chosen % 2 else indices[0]

    def charge(self, clients: Sequence[str], cost: float) -> None:
        """Charge the clients of a prefill chunk.

        Args:
            clients: Client of each prompt in the chunk, the chosen one first; they share the cost.
            cost: Cost of the chunk in any unit.
        """
        self._chosen += 1
        self._clients.charge(clients, cost)

"""Which prompt is next: clients get equal shares of the time, and their conversations one prompt each."""

from __future__ import annotations

from collections.abc import Sequence

import attrs


@attrs.frozen
class WaitingPrompt:
    """A prompt that waits to be computed.

    Args:
        client: Who asks.
        conversation: Which of the client's conversations it belongs to.
        remaining: Tokens that it still needs.
    """

    client: str
    conversation: str
    remaining: int


class FairQueue:
    """Start-time fair queueing over clients.

    A client that comes (back) begins with the share of those who are served now: it neither has to catch up
    nor may save up.
    """

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._now = 0.0
        self._chosen = 0

    def choose(self, waiting: Sequence[WaitingPrompt]) -> int:
        """Return the index of the prompt that is next.

        Of one client, every second chunk goes to the shortest prompt and the others to the oldest, so that
        neither a short prompt behind long ones nor a long one behind a stream of short ones waits for ever.
        Of one conversation, only the oldest counts.

        Args:
            waiting: The oldest first.
        """
        self._served = {client: share for client, share in self._served.items() if share > self._now}
        clients = dict.fromkeys(prompt.client for prompt in waiting)
        client = min(clients, key=lambda client: self._served.get(client, self._now))
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
        self._now = max(self._now, self._served.get(clients[0], self._now))
        for client in clients:
            self._served[client] = self._served.get(client, self._now) + cost / len(clients)

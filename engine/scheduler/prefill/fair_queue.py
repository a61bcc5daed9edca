"""Which prompt is next: clients get equal shares of the time, and their conversations one prompt each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs


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
    """Fair queueing over addresses, and over the keys of an address inside its share.

    Keys are not checked, so nobody gets more than the share of an address by making up keys.
    """

    def __init__(self) -> None:
        self._addresses = Shares()
        self._keys: dict[str, Shares] = {}
        self._chosen = 0

    @property
    def known_names(self) -> int:
        """How many addresses and keys are remembered, because they wait or had more than their share."""
        return len(self._addresses) + sum(map(len, self._keys.values()))

    def choose(self, waiting: Sequence[WaitingPrompt]) -> int:
        """Return the index of the prompt that is next.

        Of one client, every second chunk goes to the shortest prompt and the others to the oldest, so that
        neither a short prompt behind long ones nor a long one behind a stream of short ones waits for ever.
        Of one conversation, only the oldest counts.

        Args:
            waiting: The oldest first.
        """
        keys: dict[str, list[str]] = {}
        for prompt in waiting:
            address, key = _split(prompt.client)
            keys.setdefault(address, []).append(key)
        address = self._addresses.choose(keys)
        self._keys = {name: shares for name, shares in self._keys.items() if name in self._addresses}
        key = self._keys.setdefault(address, Shares()).choose(keys[address])
        heads: dict[str, int] = {}
        for index, prompt in enumerate(waiting):
            if _split(prompt.client) == (address, key):
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
        keys: dict[str, list[str]] = {}
        for client in clients:
            address, key = _split(client)
            keys.setdefault(address, []).append(key)
        self._addresses.charge([_split(client)[0] for client in clients], cost)
        for address, names in keys.items():
            self._keys.setdefault(address, Shares()).charge(names, cost * len(names) / len(clients))


class Shares:
    """Fair queueing over names, by the virtual time of WF2Q+ (Bennett and Zhang, 1997).

    What a name was served in all is compared with the virtual time, which is what one that always waited
    would have been served. A name that comes (back) begins there: it neither has to catch up nor may save up,
    nor is it better off with a new name each time. Names that are level with it are forgotten.
    """

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._now = 0.0
        self._waiting = 1

    def __len__(self) -> int:
        return len(self._served)

    def __contains__(self, name: str) -> bool:
        return name in self._served

    def choose(self, names: Iterable[str]) -> str:
        """Return the name that is next: that served least; of equal ones, that whose turn is longest ago.

        Args:
            names: All that wait, at least one.
        """
        waiting = dict.fromkeys(names)
        self._waiting = len(waiting)
        known = {
            name: served for name, served in self._served.items() if served > self._now or name in waiting
        }
        self._served = {**dict.fromkeys(waiting, self._now), **known}
        self._turns = {name: turn for name, turn in self._turns.items() if name in self._served}
        return min(waiting, key=lambda name: (self._served[name], self._turns.get(name, 0)))

    def charge(self, names: Sequence[str], cost: float) -> None:
        """Charge names for what they share equally; the first was chosen."""
        self._turn += 1
        begun = max(self._now, self._served.get(names[0], self._now))
        for name in names:
            self._served[name] = self._served.get(name, begun) + cost / len(names)
            self._turns[name] = self._turn
        self._now = begun + cost / self._waiting


def _split(client: str) -> tuple[str, str]:
    address, _, key = client.partition("#")
    return address, key

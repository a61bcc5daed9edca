"""Fair queueing of work among names that come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class Shares:
    """Fair queueing over names, by the virtual time of WF2Q+ (Bennett and Zhang, 1997).

    A name's total service is compared with the virtual time, which is the service of a name that always
    waited. A new or returning name starts there: it can neither catch up nor save up, and gains nothing from
    a new name. Names level with the virtual time are removed.
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

    def in_order(self, names: Iterable[str], costs: Mapping[str, float] | None = None) -> list[str]:
        """Return names by service received, least first; equal ones by their last turn, oldest first.

        Args:
            names: Waiting names, at least one.
            costs: Cost of each name's next turn, where known. Order is then by service after that turn, so
                that a short turn does not wait for a round of long ones.
        """
        costs = costs or {}
        waiting = dict.fromkeys(names)
        self._waiting = len(waiting)
        known = {
            name: served for name, served in self._served.items() if served > self._now or name in waiting
        }
        self._served = {**dict.fromkeys(waiting, self._now), **known}
        self._turns = {name: turn for name, turn in self._turns.items() if name in self._served}

        def tag(name: str) -> tuple[float, int]:
            return self._served[name] + costs.get(name, 0.0), self._turns.get(name, 0)

        return sorted(waiting, key=tag)

    def charge(self, names: Sequence[str], cost: float) -> None:
        """Charge names for work that they share equally; the first was chosen."""
        self._turn += 1
        begun = max(self._now, self._served.get(names[0], self._now))
        for name in names:
            self._served[name] = self._served.get(name, begun) + cost / len(names)
            self._turns[name] = self._turn
        self._now = begun + cost / self._waiting

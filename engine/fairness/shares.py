"""Equal shares of what takes time, among names that come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


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

    def in_order(self, names: Iterable[str], costs: Mapping[str, float] | None = None) -> list[str]:
        """Return names, first that served least; of equal ones, that whose turn is longest ago.

        Args:
            names: All that wait, at least one.
            costs: What the next turn of each will cost, where that is known: then the first is the one that
                will have been served least behind it, and a short turn waits for no round of long ones.
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
        """Charge names for what they share equally; the first was chosen."""
        self._turn += 1
        begun = max(self._now, self._served.get(names[0], self._now))
        for name in names:
            self._served[name] = self._served.get(name, begun) + cost / len(names)
            self._turns[name] = self._turn
        self._now = begun + cost / self._waiting

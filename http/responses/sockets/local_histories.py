"""Histories of responses that are not stored: they live as long as their socket."""

from __future__ import annotations

from collections import OrderedDict, defaultdict

import attrs

from greenroom.schemas.stored import Turns

MAX_LENGTH = 64 << 20
"""Limit of all histories of a process, in characters; the least recently used are evicted."""
ITEM_LENGTH = 256
"""Overhead of an item, counted in characters."""
MAX_LANES = 16
"""Limit of lanes per socket whose latest response is kept."""


@attrs.frozen
class _Kept:
    lane: str
    turns: Turns
    length: int


class LocalHistories:
    """Keeps, for each lane of each socket, the history up to its latest response.

    Args:
        max_length: See `MAX_LENGTH`.

    Attributes:
        length: Size of all histories in characters.
    """

    def __init__(self, max_length: int = MAX_LENGTH) -> None:
        self.length = 0
        self._max_length = max_length
        self._kept: OrderedDict[tuple[int, str], _Kept] = OrderedDict()
        self._latest: defaultdict[int, dict[str, str]] = defaultdict(dict)

    def find(self, socket: int, response: str) -> Turns | None:
        """Return the history up to a response, if it is the latest of one of the socket's lanes."""
        kept = self._kept.get((socket, response))
        if kept is None:
            return None
        self._kept.move_to_end((socket, response))
        return kept.turns

    def keep(self, socket: int, lane: str, response: str, turns: Turns) -> None:
        """Replace the lane's history, evicting others if needed; one that exceeds the limit is not kept."""
        latest = self._latest[socket]
        if lane in latest:
            self.evict(socket, latest[lane])
        elif len(latest) >= MAX_LANES:
            self.evict(socket, next(iter(latest.values())))
        length = sum(len(item.body) + ITEM_LENGTH for turn in turns.turns for item in turn.items)
        if length > self._max_length:
            return
        while self.length + length > self._max_length:
            self.evict(*next(iter(self._kept)))
        self._kept[socket, response] = _Kept(lane, turns, length)
        self._latest[socket][lane] = response
        self.length += length

    def evict(self, socket: int, response: str) -> None:
        """Remove the history of a socket's response, if it is kept."""
        kept = self._kept.pop((socket, response), None)
        if kept is not None:
            self.length -= kept.length
            del self._latest[socket][kept.lane]

    def forget(self, socket: int) -> None:
        for response in [*self._latest[socket].values()]:
            self.evict(socket, response)
        del self._latest[socket]

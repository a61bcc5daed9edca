"""Choose whose recording is decoded next, of all that are open in this process."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from typing import Generic, Protocol, TypeVar

from greenroom.engine.fairness.fair_turns import FairTurns

OPEN_AT_ONCE = 8
"""Recordings that have a decoder, whose buffers may have 13 MB; others wait until one of these has ended."""
MOST_OPEN = 32
"""Those that have one because their client has no other."""
UNMOVED_SECONDS = 5.0
"""Without a turn of any recording, since nobody takes what is decoded, after which one more is opened."""


class Decodable(Hashable, Protocol):
    """A recording that is decoded bit by bit."""

    @property
    def is_open(self) -> bool:
        """Whether it has a decoder, from its first turn to its end."""

    @property
    def wants_decoding(self) -> bool:
        """Whether there is anything left, and room for it."""


T = TypeVar("T", bound=Decodable)


class DecoderTurns(Generic[T]):
    """Bounds what is decoded at once; clients have equal shares of that, be what they sent silent or not.

    Recordings are opened in their turns too, as far as their decoders may take memory.

    Args:
        at_once: Recordings that are decoded at the same time.
        clock: Seconds, from any origin.
    """

    def __init__(self, at_once: int, clock: Callable[[], float]) -> None:
        self._at_once = at_once
        self._clock = clock
        self._turns: FairTurns[T] = FairTurns()
        self._beats: dict[T, float] = {}
        self._moved = clock()

    def __len__(self) -> int:
        return len(self._turns)

    def add(self, client: str, recording: T) -> None:
        """Add a recording behind those of its client."""
        self._turns.add(client, recording)

    def remove(self, recording: T) -> bool:
        """Remove a recording; return whether nobody is decoding it."""
        self._turns.remove(recording)
        return recording not in self._beats

    def start(self, patience: float) -> T | None:
        """Return the recording that is to be decoded now; None if none wants it, or enough are.

        Args:
            patience: Seconds without a sign of life after which a decoder counts as hanging, and another may
                work in its place.
        """
        if len(self._beats) - self._silent(self._beats, patience) >= self._at_once:
            return None
        if not len(self._turns):
            return None
        opened = {each for each in self._turns if each.is_open or each in self._beats}
        waiting = (each for each in self._turns.in_turn() if each not in self._beats and each.wants_decoding)
        recording = next((each for each in waiting if each in opened or self._may_open(each, opened)), None)
        if recording is not None:
            self.beat(recording)
            self._moved = self._clock()
        return recording

    def beat(self, recording: T) -> None:
        """Note a sign of life from whoever decodes a recording."""
        self._beats[recording] = self._clock()

    def stop(self, recording: T, cost: float) -> bool:
        """End the turn of a recording; return whether it is still wanted.

        Args:
            cost: Samples that were decoded, those of all channels together.
        """
        del self._beats[recording]
        wanted = recording in set(self._turns)
        if wanted:
            self._turns.charge(recording, cost)
        return wanted

    def is_silent(self, recording: T, seconds: float) -> bool:
        """Return whether whoever decodes a recording has given no sign of life for longer than that."""
        return bool(self._silent({recording} & self._beats.keys(), seconds))

    def hung(self, seconds: float) -> int:
        """Return how many decoders of recordings that nobody wants have been silent for longer than that."""
        return self._silent(self._beats.keys() - set(self._turns), seconds)

    def _may_open(self, recording: T, opened: Set[T]) -> bool:
        client = self._turns.client_of(recording)
        if len(opened) < OPEN_AT_ONCE:
            return True
        if len(opened) < MOST_OPEN and client not in map(self._turns.client_of, opened):
            return True
        # Those that are open may wait for whoever waits for this one.
        return not self._beats and self._clock() - self._moved > UNMOVED_SECONDS

    def _silent(self, recordings: object, seconds: float) -> int:
        now = self._clock()
        return sum(now - self._beats[each] > seconds for each in recordings)  # type: ignore[attr-defined]
